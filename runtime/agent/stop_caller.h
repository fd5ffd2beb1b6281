// StopCaller: calls the trainer's stop handler on a thread of its own, so that the agent's goes on beating however long
// the handler takes.
//
// A request during a call is answered by one more call after it, however many requests there were: the handler is
// idempotent, and what it is to free may have been entered again meanwhile.
// Threads: Request and Cancel on the agent's; AwaitIdle and Close on the trainer's; `call` and `returned` run on the
// caller's own, one at a time. `returned` gets the number of the newest request that the call answers.
// Ownership: what `call` works on must live until Close has returned.
// Invariants: after Close no call runs and none begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "callbacks/handlers/cancel.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

class StopCaller {
 public:
  using Call = std::function<void(CancelToken& cancel)>;
  using Returned = std::function<void(uint64_t request)>;

  StopCaller(Call call, Returned returned);
  ~StopCaller();
  StopCaller(const StopCaller&) = delete;
  StopCaller& operator=(const StopCaller&) = delete;

  // The number of the request: 1, 2, ...
  uint64_t Request();
  // What was requested so far has run out of time: the call under way is told, and one that has not begun as it begins.
  void Cancel();
  // Returns when no call is under way or due.
  void AwaitIdle();
  // The same for good: what was requested and has not begun is dropped.
  void Close();

 private:
  void Main();

  const Call call_;
  const Returned returned_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t requested_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uint64_t begun_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uint64_t late_ KINTSUGI_GUARDED_BY(mutex_) = 0;                    // requests up to this one have run out of time
  std::shared_ptr<CancelToken> cancel_ KINTSUGI_GUARDED_BY(mutex_);  // of the call under way
  bool closed_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kintsugi
