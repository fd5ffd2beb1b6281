// LinkMesh: a rank's links to other ranks, the members of a mesh in one generation, each opened when it is first
// needed and kept.
//
// What: one link for each pair of ranks, for host memory, used in both directions. Links stay open from one use to the
// next: what ranks tell each other to open one stays in the generation's store, so a link for each use would fill it.
// Threads: one; Abort from any at any moment.
// Errors: as MakeLink. After an error of any link the whole mesh is of no use: abort and destroy it.
// Ownership: the store outlives it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replica/links/make_link.h"
#include "runtime/base/mutex.h"

namespace kintsugi::live {

struct MeshOptions {
  Store* store = nullptr;  // not needed where there is one member
  Generation generation;
  Rank self;
  std::vector<int32_t> members;  // ascending, `self` among them
  std::string name;              // all members have one mesh of this name in a generation
  LinkPreference prefer = LinkPreference::kAutomatic;
  RankAddress address;
  std::shared_ptr<LogSink> log;  // may be null
};

class KINTSUGI_EXPORT LinkMesh {
 public:
  explicit LinkMesh(MeshOptions options) : options_(std::move(options)) {}
  LinkMesh(const LinkMesh&) = delete;
  LinkMesh& operator=(const LinkMesh&) = delete;

  // Opens the links to `peers` that are not open. Both ranks of a pair name each other in the same call, in any order.
  Status Connect(std::vector<int32_t> peers, TimePoint deadline, CancelToken* cancel);
  // REQUIRES: Connect has opened it.
  Link& To(int32_t peer) const;
  // Every link, now and later.
  void Abort();
  // It was, and is of no use.
  bool aborted() const {
    const MutexLock lock(mutex_);
    return aborted_;
  }

  int32_t self() const { return options_.self.value(); }
  const std::vector<int32_t>& members() const { return options_.members; }

 private:
  const MeshOptions options_;
  mutable Mutex mutex_;
  bool aborted_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::map<int32_t, std::unique_ptr<Link>> links_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi::live
