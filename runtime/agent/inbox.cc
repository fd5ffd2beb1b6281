#include "runtime/agent/inbox.h"

#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

void Inbox::PutOrder(const core::RunOnTrainer& order) {
  {
    const MutexLock lock(mutex_);
    order_ = order;
  }
  changed_.NotifyAll();
}

void Inbox::PutRelease(const Release& release) {
  {
    const MutexLock lock(mutex_);
    verdict_.reset();
    gate_open_.reset();
    release_ = release;
  }
  changed_.NotifyAll();
}

void Inbox::PutContinue() {
  {
    const MutexLock lock(mutex_);
    continue_ = true;
  }
  changed_.NotifyAll();
}

void Inbox::PutVerdict(const core::StopOrder& verdict) {
  {
    const MutexLock lock(mutex_);
    verdict_ = verdict;
  }
  changed_.NotifyAll();
}

void Inbox::OpenGate(Step step) {
  {
    const MutexLock lock(mutex_);
    gate_open_ = step;
  }
  changed_.NotifyAll();
}

// A verdict or a release of an earlier attempt that the trainer has not taken yet is void: it takes both under this
// mutex.
Inbox::Locked Inbox::LockGate() {
  Locked locked;
  {
    const MutexLock lock(mutex_);
    verdict_.reset();
    locked.dropped_release = std::exchange(release_, std::nullopt).has_value();
    locked.before = gate_.Lock();
  }
  changed_.NotifyAll();
  return locked;
}

Inbox::Withdrawn Inbox::WithdrawOrder() {
  Withdrawn withdrawn;
  {
    const MutexLock lock(mutex_);
    withdrawn.cancel = cancel_;
    withdrawn.order = std::exchange(order_, std::nullopt);
  }
  changed_.NotifyAll();
  return withdrawn;
}

std::shared_ptr<CancelToken> Inbox::PutEnd(const RunEnd& end) {
  KINTSUGI_CHECK(ending_, "an end was put that had not begun");
  std::shared_ptr<CancelToken> cancel;
  {
    const MutexLock lock(mutex_);
    KINTSUGI_CHECK(!end_, "a run ends once");
    end_ = end;
    cancel = cancel_;
    gate_.LockForGood();
  }
  changed_.NotifyAll();
  return cancel;
}

Inbox::Taken Inbox::Take(TimePoint until) {
  Taken taken;
  MutexLock lock(mutex_);
  const auto due = [&]() KINTSUGI_REQUIRES(mutex_) { return order_ || release_ || continue_ || end_; };
  if (until == TimePoint::Max())
    changed_.Wait(lock, due);
  else if (!changed_.WaitUntil(lock, std::chrono::steady_clock::time_point(until.since_epoch()), due))
    return taken;
  if (end_) {
    taken.kind = Taken::Kind::kEnd;
    taken.end = *end_;
  } else if (order_) {
    taken.kind = Taken::Kind::kOrder;
    taken.order = std::exchange(order_, std::nullopt);
    taken.cancel = cancel_ = std::make_shared<CancelToken>();
  } else if (release_) {
    TakeRelease(&taken);
  } else {
    taken.kind = Taken::Kind::kContinue;
    continue_ = false;
  }
  return taken;
}

void Inbox::TakeRelease(Taken* taken) {
  taken->kind = Taken::Kind::kRelease;
  taken->release = *std::exchange(release_, std::nullopt);
  continue_ = false;
  gate_.Release(taken->release.step);
  if (taken->release.whole) page_.Mark(core::StateMark::kWhole);
}

bool Inbox::AwaitGate(Step step) {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) {
    return (gate_open_ && *gate_open_ == step) || end_ || gate_.Word().locked;
  });
  return gate_open_ && *gate_open_ == step;
}

bool Inbox::AwaitVerdict(Step step) {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return verdict_ || end_; });
  const bool happens = verdict_ && !end_ && verdict_->step_exists && verdict_->step == step;
  gate_.Judge(step, happens);
  return happens;
}

Inbox::RunEnd Inbox::AwaitEnd() {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return end_.has_value(); });
  return *end_;
}

std::optional<Inbox::RunEnd> Inbox::end() const {
  const MutexLock lock(mutex_);
  return end_;
}

}  // namespace kintsugi
