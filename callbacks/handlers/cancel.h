// CancelToken: tells work of an older generation to stop, from another thread.
//
// Threads: Cancel may be called from any thread, once or more; callbacks run on the cancelling thread, each at most
// once. Subscribing after Cancel runs the callback at once, on the subscribing thread. When Cancel returns, to any
// caller, every callback has run.
// Ownership: the token outlives its subscriptions.
// Errors: callbacks do not throw; what one throws is dropped, so that the others still run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>

#include "runtime/base/export.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

class KINTSUGI_EXPORT CancelToken {
 public:
  // Keeps a callback subscribed for as long as it lives. After the destructor returned the callback does not run.
  class Subscription {
   public:
    Subscription(CancelToken& token, std::function<void()> callback);
    ~Subscription();
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;

   private:
    CancelToken& token_;
    uint64_t id_ = 0;
  };

  void Cancel();
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  // Held while callbacks run, so that a Subscription's end waits for its own callback. Callbacks must be short and must
  // not touch the token.
  Mutex mutex_;
  std::atomic<bool> cancelled_{false};
  uint64_t next_id_ KINTSUGI_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::function<void()>> callbacks_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi
