#include "callbacks/handlers/cancel.h"

#include <map>
#include <utility>

#include "runtime/base/mutex.h"

namespace kintsugi {
namespace {

// One callback that throws must not keep the others from hearing of the cancellation.
void RunQuietly(const std::function<void()>& callback) {
  try {
    if (callback) callback();
  } catch (...) {
  }
}

}  // namespace

// `mutex` is held while callbacks run, so that a Subscription's end waits for its own callback. Callbacks must be short
// and must not touch the token.
struct CancelToken::Callbacks {
  Mutex mutex;
  uint64_t next_id KINTSUGI_GUARDED_BY(mutex) = 1;
  std::map<uint64_t, std::function<void()>> by_id KINTSUGI_GUARDED_BY(mutex);
};

CancelToken::CancelToken() : callbacks_(std::make_unique<Callbacks>()) {}
CancelToken::~CancelToken() = default;

CancelToken::Subscription::Subscription(CancelToken& token, std::function<void()> callback) : token_(token) {
  Callbacks& callbacks = *token_.callbacks_;
  const MutexLock lock(callbacks.mutex);
  if (token_.cancelled_) {
    RunQuietly(callback);
    return;
  }
  id_ = callbacks.next_id++;
  callbacks.by_id.emplace(id_, std::move(callback));
}

CancelToken::Subscription::~Subscription() {
  Callbacks& callbacks = *token_.callbacks_;
  const MutexLock lock(callbacks.mutex);
  callbacks.by_id.erase(id_);
}

void CancelToken::Cancel() {
  const MutexLock lock(callbacks_->mutex);
  if (cancelled_.exchange(true)) return;
  for (auto& [id, callback] : callbacks_->by_id) RunQuietly(callback);
  callbacks_->by_id.clear();
}

}  // namespace kintsugi
