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
#include <memory>

#include "runtime/base/export.h"

namespace kintsugi {

class KINTSUGI_EXPORT CancelToken {
 public:
  CancelToken();
  ~CancelToken();
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;

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
  struct Callbacks;
  std::atomic<bool> cancelled_{false};
  const std::unique_ptr<Callbacks> callbacks_;
};

}  // namespace kintsugi
