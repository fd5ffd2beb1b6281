// SpareChannel: how a process that was started before it is needed learns which rank it is to be.
//
// The launcher keeps one end, the spare inherits the other and blocks on it. One message, once: a rank and an
// incarnation.
//
// Threads: each end is one thread's.
// Ownership: both ends are this object's until CloseSpareEnd; AwaitRank leaves its descriptor open.
// Errors: Create: kResourceExhausted. Give: kUnavailable, the spare is gone. AwaitRank: kEnded, the launcher needs no
// spare any more (or is gone); kInvalidArgument, the descriptor is no such channel or the message is of another build.
#pragma once

#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

// One life of a rank.
struct RankIncarnation {
  Rank rank;
  Incarnation incarnation;
};

class KINTSUGI_EXPORT SpareChannel {
 public:
  static Result<SpareChannel> Create();

  // To be passed to the process, and closed here once it has its copy.
  int spare_end() const { return spare_end_.get(); }
  void CloseSpareEnd() { spare_end_.Reset(); }
  // Never blocks.
  Status Give(const RankIncarnation& who);

 private:
  SpareChannel(UniqueFd end, UniqueFd spare_end) : end_(std::move(end)), spare_end_(std::move(spare_end)) {}

  UniqueFd end_;
  UniqueFd spare_end_;
};

// In the spare: blocks until it is told which rank it is to be.
KINTSUGI_EXPORT Result<RankIncarnation> AwaitRank(int fd);

}  // namespace kintsugi
