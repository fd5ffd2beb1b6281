#include <guarded_work.h>

namespace kintsugi::torch_door {

using c10d::OpType;

namespace {

void Complete(c10::ivalue::Future& future, const std::exception_ptr& error, const std::vector<at::Tensor>& outputs) {
  if (error)
    future.setErrorIfNeeded(error);
  else
    future.markCompleted(c10::IValue(outputs));
}

}  // namespace

std::exception_ptr Failure(const std::string& text) {
  return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, text));
}

std::string TextOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

// Either it sees that somebody waits, or who waits sees that nothing is open.
void OpenWorks::End() {
  if (--count_ > 0 || !awaited_) return;
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool OpenWorks::AwaitNone(std::chrono::milliseconds limit) {
  awaited_ = true;
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return count_ == 0; });
}

GuardedWork::GuardedWork(OpType type, c10::intrusive_ptr<c10d::Work> inner, std::vector<at::Tensor> outputs,
                         std::shared_ptr<const std::string> group, std::shared_ptr<OpenWorks> open,
                         std::chrono::milliseconds patience, Marked marked, std::function<void()> after)
    : Work(-1, type),
      inner_(std::move(inner)),
      outputs_(std::move(outputs)),
      group_(std::move(group)),
      open_(std::move(open)),
      patience_(patience),
      marked_(marked),
      after_(std::move(after)) {}

std::exception_ptr GuardedWork::FailureOf(const std::string& why) const {
  return Failure((group_ ? *group_ : "") + c10d::opTypeToString(retrieveOpType()) + " " + why);
}

c10::intrusive_ptr<GuardedWork> GuardedWork::Done(OpType type, std::vector<at::Tensor> outputs) {
  auto work = c10::make_intrusive<GuardedWork>(type, nullptr, std::move(outputs), nullptr, nullptr);
  work->Finish(nullptr);
  return work;
}

void GuardedWork::Listen(const c10::intrusive_ptr<GuardedWork>& self) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    future = self->inner_->getFuture();
  } catch (const std::exception&) {  // sends, receives and some reductions of Gloo's have none
  }
  if (!future) return;
  self->listens_ = true;
  self->open_->Begin();
  future->addCallback(
      [self](c10::ivalue::Future& done) {
        self->Finish(done.hasError() ? self->FailureOf(TextOf(done.exception_ptr())) : self->DoAfter());
        self->open_->End();
      },
      /*uses_future=*/false);
}

// Drained like the inner work: a thread that awaits the open ones finds this done, too.
std::exception_ptr GuardedWork::DoAfter() {
  if (!after_ || failed_) return nullptr;
  try {
    after_();
    after_ = {};
  } catch (const std::exception&) {
    return FailureOf(TextOf(std::current_exception()));
  }
  return nullptr;
}

// The first end counts: a work that was failed and ends later stays failed.
void GuardedWork::Finish(std::exception_ptr error) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard lock(mutex_);
    if (completed_) return;
    completed_ = true;
    exception_ = error;
    future = future_;
  }
  marked_.Leave(error != nullptr);
  cv_.notify_all();
  if (future) Complete(*future, error, outputs_);
}

c10::intrusive_ptr<c10::ivalue::Future> GuardedWork::getFuture() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  static const c10::TypePtr kTensors = c10::ListType::create(c10::TensorType::get());
  const auto future = future_ = c10::make_intrusive<c10::ivalue::Future>(kTensors);
  const bool completed = completed_;
  const std::exception_ptr error = exception_;
  lock.unlock();
  if (completed) Complete(*future, error, outputs_);
  return future;
}

void GuardedWork::Fail(const std::string& why) {
  failed_ = true;
  if (inner_ && !listens_) {
    try {
      inner_->abort();  // wakes a wait for a send or a receive, which then returns false
    } catch (const std::exception&) {
    }
  }
  Finish(FailureOf(why));
}

bool GuardedWork::isCompleted() {
  {
    std::lock_guard lock(mutex_);
    if (completed_) return true;
  }
  return inner_ && !listens_ && inner_->isCompleted();
}

bool GuardedWork::isSuccess() const {
  std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr GuardedWork::exception() const {
  std::lock_guard lock(mutex_);
  return exception_;
}

int GuardedWork::sourceRank() const { return inner_ ? inner_->sourceRank() : rank_; }
std::vector<at::Tensor> GuardedWork::result() { return outputs_; }
void GuardedWork::synchronize() { wait(kNoTimeout); }
void GuardedWork::abort() { Fail("was aborted"); }

// Gloo's sends and receives are waited for where they are made; an aborted one returns false without an error.
bool GuardedWork::WaitInner(std::chrono::milliseconds timeout) {
  std::exception_ptr error;
  marked_.Wait();
  try {
    error =
        inner_->wait(timeout == kNoTimeout ? patience_ : timeout) && !failed_ ? DoAfter() : FailureOf("was aborted");
  } catch (const std::exception& e) {
    error = FailureOf(TextOf(std::current_exception()));
  }
  Finish(error);
  if (exception()) std::rethrow_exception(exception());
  return true;
}

bool GuardedWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!completed_ && inner_ && !listens_) {
    lock.unlock();
    return WaitInner(timeout);
  }
  const auto completed = [&] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, completed);
  } else if (!cv_.wait_for(lock, timeout, completed)) {
    lock.unlock();
    std::rethrow_exception(FailureOf("was not done within " + std::to_string(timeout.count()) + " ms"));
  }
  const std::exception_ptr error = exception_;
  lock.unlock();
  if (error) std::rethrow_exception(error);
  return true;
}

}  // namespace kintsugi::torch_door
