#include "callbacks/handlers/cancel.h"

namespace kintsugi {

CancelToken::Subscription::Subscription(CancelToken& token, std::function<void()> callback) : token_(token) {
  std::lock_guard lock(token_.mutex_);
  if (token_.cancelled_) {
    callback();
    return;
  }
  id_ = token_.next_id_++;
  token_.callbacks_.emplace(id_, std::move(callback));
}

CancelToken::Subscription::~Subscription() {
  std::lock_guard lock(token_.mutex_);
  token_.callbacks_.erase(id_);
}

void CancelToken::Cancel() {
  std::lock_guard lock(mutex_);
  if (cancelled_.exchange(true)) return;
  for (auto& [id, callback] : callbacks_) callback();
  callbacks_.clear();
}

}  // namespace kintsugi
