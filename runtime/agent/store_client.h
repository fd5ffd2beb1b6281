// StoreClient: a process's side of the rendezvous store of the newest generation it has heard of.
//
// What was set, and what was asked and is not answered, is said again when the connection comes back. A question outlives
// the call that put it, for the next call with the same key: where the way is longer than one call may wait, asking anew
// would never hear the answer.
// Threads: any. `send` is called without its mutex.
// Errors: kCancelled: a newer generation has begun, or the run has ended; kDeadlineExceeded names key and limit;
// kResourceExhausted: a key or value above the store's limits.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/handlers/store.h"
#include "runtime/base/mutex.h"
#include "runtime/core/messages.h"

namespace kintsugi {

class StoreClient {
 public:
  // Carries a message of this generation to the controller.
  using Send = std::function<void(Generation, core::AgentMessage)>;
  explicit StoreClient(Send send) : send_(std::move(send)) {}

  // The store of one generation, as handlers see it; does not outlive this object.
  std::unique_ptr<Store> Of(Generation generation);

  Status Set(Generation generation, const std::string& key, const std::vector<uint8_t>& value);
  Result<std::vector<uint8_t>> Get(Generation generation, const std::string& key, TimePoint deadline);

  void OnAnswered(const core::StoreReply& reply);
  // The generation is over: the store's own word of it may be lost with a connection.
  void CancelWaits();
  // The connection is back, and the agent is in `generation`.
  void SayAgain(Generation generation);
  void End();

 private:
  struct Wait {
    std::string key;
    std::optional<core::StoreReply> reply;
  };
  // False: it is older than what has been asked and set since.
  bool Enter(Generation generation) KINTSUGI_REQUIRES(mutex_);

  const Send send_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ KINTSUGI_GUARDED_BY(mutex_) = false;
  Generation generation_ KINTSUGI_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Wait>> waits_ KINTSUGI_GUARDED_BY(mutex_);  // by request
  std::vector<core::StoreSet> sets_ KINTSUGI_GUARDED_BY(mutex_);
  uint64_t next_request_ KINTSUGI_GUARDED_BY(mutex_) = 1;
};

}  // namespace kintsugi
