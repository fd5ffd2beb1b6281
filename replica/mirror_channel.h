// MirrorChannel: mirrored objects to and from one replica partner, over the link of one generation. What did not change
// since the last exchange there is named, not sent.
//
// Threads: one; the link is aborted by any.
// Ownership: the link, and a share of what was exchanged last.
// Errors: the link's. kFailedPrecondition: the peer is at another step. kDataLoss: what came is damaged, or is said to be
// as before and was not there.
// Invariants: both sides know the same of the last exchange: one that fails is the last of its channel.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "callbacks/state/mirrored.h"
#include "replica/stream/link.h"

namespace kintsugi {

class MirrorChannel {
 public:
  explicit MirrorChannel(std::unique_ptr<Link> link) : link_(std::move(link)) {}

  // Gives `mine`, takes the peer's of the same step. The lower rank sends first.
  Status Exchange(Rank self, Step step, const MirroredObjects& mine, MirroredObjects* theirs, TimePoint deadline);
  Rank peer() const { return link_->peer(); }
  void Abort() { link_->Abort(); }

 private:
  using ByKey = std::map<std::string, SharedBytes>;

  Status Give(Step step, const MirroredObjects& mine, TimePoint deadline);
  Status Take(Step step, MirroredObjects* theirs, TimePoint deadline);

  std::unique_ptr<Link> link_;
  ByKey given_, taken_;  // at the last exchange
};

}  // namespace kintsugi
