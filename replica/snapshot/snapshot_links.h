// SnapshotLinks: one generation's links between ranks and the partners that keep their second copies.
//
// One link for each direction, named after its two ends, so that a stream each way never meets another. A link that
// broke is opened anew for the next snapshot, under a name that holds its step: both ends have that order.
// Threads: Open and the takers on the service's worker; Abort on any.
// Errors: MakeLink's.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "callbacks/handlers/cancel.h"
#include "callbacks/handlers/snapshot_service.h"
#include "replica/links/make_link.h"
#include "replica/links/replica_options.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

class SnapshotLinks {
 public:
  SnapshotLinks(SnapshotService::Session session, const ReplicaOptions& options)
      : session_(std::move(session)), options_(options) {}

  const SnapshotService::Session& session() const { return session_; }
  // Opens what the order needs and is not open, in an order that is the same for both ends of any link.
  Status Open(const SnapshotOrder& order);
  // The link to the partner; null: it is not open.
  std::shared_ptr<Link> out() const;
  // The link on which the copies of `owner` come in.
  std::shared_ptr<Link> in(Rank owner) const;
  // It broke: it is opened anew at the next order.
  void DropOut();
  void DropIn(Rank owner);

  void Abort();
  // Set by Abort.
  const std::atomic<bool>& aborted() const { return aborted_; }

 private:
  Result<std::shared_ptr<Link>> OpenOne(Rank from, Rank to, Step step);

  const SnapshotService::Session session_;
  const ReplicaOptions options_;
  CancelToken cancel_;
  std::atomic<bool> aborted_{false};
  mutable Mutex mutex_;
  std::shared_ptr<Link> out_ KINTSUGI_GUARDED_BY(mutex_);
  std::map<Rank, std::shared_ptr<Link>> in_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi
