#include <guarded_work.h>
#include <torch_inner.h>

#include <chrono>
#include <thread>

namespace kintsugi::torch_door {
namespace {

using Clock = std::chrono::steady_clock;
using Shared = TorchInner::Shared;
// Usual calls take up to 50 us. One that takes longer is stuck, and only the abort ends it.
constexpr auto kUsualCall = std::chrono::milliseconds(2);
constexpr auto kPoll = std::chrono::microseconds(20);
constexpr char kAborted[] = "was aborted: an incident has begun";

class Inside {
 public:
  // Counted before the flag is looked at: either the abort sees the call, or the call sees the flag.
  explicit Inside(Shared& shared) : shared_(shared) { ++shared_.inside; }
  ~Inside() { --shared_.inside; }
  Inside(const Inside&) = delete;

 private:
  Shared& shared_;
};

void CheckNotVoid(const Shared& shared) { TORCH_CHECK(!shared.is_void, kAborted); }

class TorchWork final : public c10d::Work {
 public:
  TorchWork(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Shared> shared)
      : Work(-1, inner->retrieveOpType()), inner_(std::move(inner)), shared_(std::move(shared)) {}

  bool isCompleted() override { return shared_->is_void || inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess() && !shared_->is_void; }
  std::exception_ptr exception() const override { return shared_->is_void ? Failed() : inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override {
    Check();
    inner_->synchronize();
    Check();
  }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    if (retrieveOpType() == c10d::OpType::BARRIER) {
      while (!inner_->isCompleted()) {
        Check();
        std::this_thread::sleep_for(kPoll);
      }
      Check();
    }
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }

 private:
  std::exception_ptr Failed() const {
    return Failure(*shared_->called + c10d::opTypeToString(retrieveOpType()) + " " + kAborted);
  }
  void Check() const {
    if (shared_->is_void) std::rethrow_exception(Failed());
  }

  const c10::intrusive_ptr<c10d::Work> inner_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

TorchInner::TorchInner(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<const std::string> called)
    : shared_(std::make_shared<Shared>()) {
  shared_->backend = std::move(backend);
  shared_->called = std::move(called);
}

c10::intrusive_ptr<c10d::Work> TorchInner::Begin(Call call) {
  CheckNotCapturing();
  c10::intrusive_ptr<c10d::Work> begun;
  {
    const Inside inside(*shared_);
    CheckNotVoid(*shared_);
    try {
      begun = call(*shared_->backend);
    } catch (const std::exception&) {
      CheckNotVoid(*shared_);  // what is said of a call that an abort has ended is the abort's
      throw;
    }
  }
  CheckNotVoid(*shared_);
  return begun ? c10::make_intrusive<TorchWork>(std::move(begun), shared_) : nullptr;
}

void TorchInner::Cut() {
  if (shared_->is_void.exchange(true)) return;
  std::thread([shared = shared_] {
    for (const auto until = Clock::now() + kUsualCall; shared->inside > 0 && Clock::now() < until;)
      std::this_thread::yield();
    try {
      shared->backend->abort();
    } catch (const std::exception&) {  // it waits for its own end, and gives that up
    }
  }).detach();
}

}  // namespace kintsugi::torch_door
