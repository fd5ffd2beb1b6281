#include "replica/snapshot/snapshot_links.h"

#include <algorithm>

namespace kintsugi {

Result<std::shared_ptr<Link>> SnapshotLinks::OpenOne(Rank from, Rank to, Step step) {
  const Rank peer = from == session_.self ? to : from;
  KINTSUGI_ASSIGN_OR_RETURN(
      std::unique_ptr<Link> link,
      MakeLink(*session_.store, {.generation = session_.generation,
                                 .self = session_.self,
                                 .peer = peer,
                                 .name = "snapshot/" + from.ToString() + "-" + to.ToString() + "/" + step.ToString(),
                                 .deadline = SteadyClock::SteadyNow() + session_.limit,
                                 .cancel = &cancel_,
                                 .prefer = HostLink(options_.prefer),
                                 .address = options_.address}));
  return std::shared_ptr<Link>(std::move(link));
}

Status SnapshotLinks::Open(const SnapshotOrder& order) {
  struct Edge {
    Rank peer, from;
  };
  std::vector<Edge> edges;
  {
    const MutexLock lock(mutex_);
    if (order.partner.value() >= 0 && !out_) edges.push_back({order.partner, session_.self});
    for (Rank owner : order.of)
      if (!in_[owner]) edges.push_back({owner, owner});
  }
  // Ascending by peer, as everywhere: nobody waits in a circle. Of the two between one pair both ends take the same
  // first.
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return std::pair(a.peer, a.from) < std::pair(b.peer, b.from); });
  Status first;
  for (const Edge& edge : edges) {
    const bool outgoing = edge.from == session_.self;
    auto link = OpenOne(edge.from, outgoing ? edge.peer : session_.self, order.step);
    if (!link.ok()) {
      if (first.ok()) first = link.status();
      continue;
    }
    const MutexLock lock(mutex_);
    if (aborted_) (*link)->Abort();
    (outgoing ? out_ : in_[edge.peer]) = std::move(link).value();
  }
  return first;
}

std::shared_ptr<Link> SnapshotLinks::out() const {
  const MutexLock lock(mutex_);
  return out_;
}

std::shared_ptr<Link> SnapshotLinks::in(Rank owner) const {
  const MutexLock lock(mutex_);
  const auto found = in_.find(owner);
  return found == in_.end() ? nullptr : found->second;
}

void SnapshotLinks::DropOut() {
  const MutexLock lock(mutex_);
  if (out_) out_->Abort();
  out_.reset();
}

void SnapshotLinks::DropIn(Rank owner) {
  const MutexLock lock(mutex_);
  auto& link = in_[owner];
  if (link) link->Abort();
  link.reset();
}

void SnapshotLinks::Abort() {
  {
    const MutexLock lock(mutex_);
    aborted_ = true;
    if (out_) out_->Abort();
    for (auto& [owner, link] : in_)
      if (link) link->Abort();
  }
  cancel_.Cancel();
}

}  // namespace kintsugi
