#include "callbacks/handlers/cancel.h"

#include <utility>

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

CancelToken::Subscription::Subscription(CancelToken& token, std::function<void()> callback) : token_(token) {
  const MutexLock lock(token_.mutex_);
  if (token_.cancelled_) {
    RunQuietly(callback);
    return;
  }
  id_ = token_.next_id_++;
  token_.callbacks_.emplace(id_, std::move(callback));
}

CancelToken::Subscription::~Subscription() {
  const MutexLock lock(token_.mutex_);
  token_.callbacks_.erase(id_);
}

void CancelToken::Cancel() {
  const MutexLock lock(mutex_);
  if (cancelled_.exchange(true)) return;
  for (auto& [id, callback] : callbacks_) RunQuietly(callback);
  callbacks_.clear();
}

}  // namespace kintsugi
