#include "replica/live/link_mesh.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::live {

Status LinkMesh::Connect(std::vector<int32_t> peers, TimePoint deadline, CancelToken* cancel) {
  {
    const MutexLock lock(mutex_);
    std::erase_if(peers, [&](int32_t peer) KINTSUGI_REQUIRES(mutex_) { return links_.count(peer) > 0; });
  }
  // Opening waits for the peer. The rounds of a tournament, of which pair (a, b) is in number (a + b) mod n: a rank
  // has one partner in each, so the first round that is not over has a pair with both its ranks at it.
  const int32_t ranks = members().back() + 1, own = self();
  std::sort(peers.begin(), peers.end(), [&](int32_t a, int32_t b) { return (own + a) % ranks < (own + b) % ranks; });
  for (const int32_t peer : peers) {
    KINTSUGI_ASSIGN_OR_RETURN(std::unique_ptr<Link> link,
                              MakeLink(*options_.store, {.generation = options_.generation,
                                                         .self = options_.self,
                                                         .peer = Rank(peer),
                                                         .name = options_.name,
                                                         .deadline = deadline,
                                                         .cancel = cancel,
                                                         .prefer = HostLink(options_.prefer),
                                                         .address = options_.address,
                                                         .log = options_.log}));
    const MutexLock lock(mutex_);
    if (aborted_) link->Abort();
    links_[peer] = std::move(link);
  }
  return Status::Ok();
}

Link& LinkMesh::To(int32_t peer) const {
  const MutexLock lock(mutex_);
  const auto found = links_.find(peer);
  KINTSUGI_CHECK(found != links_.end(), "a link that was not opened");
  return *found->second;
}

void LinkMesh::Abort() {
  const MutexLock lock(mutex_);
  aborted_ = true;
  for (const auto& [peer, link] : links_) link->Abort();
}

}  // namespace kintsugi::live
