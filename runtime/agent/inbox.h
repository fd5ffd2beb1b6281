// Inbox: what the agent's thread tells the trainer's: an order, a verdict, a release, go on, the end.
//
// Order: the agent's thread locks the gate and drops a verdict or a release that was not taken yet under one lock, and
// the trainer's thread takes them under the same lock, so the second thread sees what the first did. What the core is
// told of the gate is therefore what will happen.
// Threads: Put..., OpenGate, LockGate, WithdrawOrder and End are the agent's; Take and Await... the trainer's, which
// they may block; the rest is for any.
// Ownership: refers to the gate and the page, which outlive it.
// Errors: none.
// Invariants: every wait ends with the run. An end is the last word: it is never taken back.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "callbacks/handlers/cancel.h"
#include "runtime/agent/gate.h"
#include "runtime/agent/rank_page.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/core/agent_core.h"

namespace kintsugi {

class Inbox {
 public:
  struct Release {
    Generation generation;
    Step step;
    bool whole = true;  // what it holds counts
  };
  struct RunEnd {
    int exit_code = 0;
    std::string text;
  };
  // What was taken: the first of these that is there.
  struct Taken {
    enum class Kind : uint8_t { kNothing, kEnd, kOrder, kRelease, kContinue };
    Kind kind = Kind::kNothing;
    RunEnd end;                               // kEnd
    std::optional<core::RunOnTrainer> order;  // kOrder
    std::shared_ptr<CancelToken> cancel;      // kOrder: of the task
    Release release;                          // kRelease
  };
  struct Locked {
    core::GateWord before;
    bool dropped_release = false;
  };
  struct Withdrawn {
    std::shared_ptr<CancelToken> cancel;      // of the task that was taken last; null: none was
    std::optional<core::RunOnTrainer> order;  // that was not taken yet
  };

  Inbox(Gate& gate, RankPage& page) : gate_(gate), page_(page) {}

  void PutOrder(const core::RunOnTrainer& order);
  void PutRelease(const Release& release);
  void PutContinue();
  void PutVerdict(const core::StopOrder& verdict);
  void OpenGate(Step step);
  Locked LockGate();
  Withdrawn WithdrawOrder();
  // The cancel token of the task under way; null: none is.
  std::shared_ptr<CancelToken> PutEnd(const RunEnd& end);

  // kNothing: `until` has come. A release unlocks the gate and says that the state is whole.
  Taken Take(TimePoint until);
  // At the gate until the controller opens it: true; false: an incident has begun, or the run is over.
  bool AwaitGate(Step step);
  // Held at the gate: whether update `step` happens, which the gate's word says then.
  bool AwaitVerdict(Step step);
  RunEnd AwaitEnd();
  std::optional<RunEnd> end() const;

  // The end has begun: what was to be told will not be. False: it had before.
  bool BeginEnd() { return !ending_.exchange(true); }
  bool ending() const { return ending_; }
  // Park at the first boundary that is not before it; 0: none is asked for. Only the agent's thread sets and clears it,
  // in the order of the controller's messages.
  void StorePause(Step step) { pause_at_.store(step.value(), std::memory_order_seq_cst); }
  uint64_t pause_at() const { return pause_at_.load(std::memory_order_seq_cst); }

 private:
  void TakeRelease(Taken* taken) KINTSUGI_REQUIRES(mutex_);

  Gate& gate_;
  RankPage& page_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<core::RunOnTrainer> order_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<Release> release_ KINTSUGI_GUARDED_BY(mutex_);
  bool continue_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::optional<RunEnd> end_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<core::StopOrder> verdict_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<Step> gate_open_ KINTSUGI_GUARDED_BY(mutex_);
  std::shared_ptr<CancelToken> cancel_ KINTSUGI_GUARDED_BY(mutex_);
  std::atomic<bool> ending_{false};
  std::atomic<uint64_t> pause_at_{0};
};

}  // namespace kintsugi
