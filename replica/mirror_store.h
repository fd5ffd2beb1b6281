// MirrorStore: mirrored objects of this rank and of its partners, for the newest two steps. What did not change from one
// step to the next is there once.
//
// Two steps, because survivors may meet at the step they just mirrored or at the one before.
// Threads: any; one mutex.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "callbacks/state/mirrored.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

class MirrorStore {
 public:
  // Steps after `step` belong to an attempt that was given up: they go.
  void Put(Rank rank, Step step, MirroredObjects objects);
  // This rank's own, newer than what its partners have of the same step: these stay whatever a partner tells of it.
  void Refresh(Rank self, Step step, MirroredObjects objects);
  std::optional<MirroredObjects> Get(Rank rank, Step step) const;
  std::vector<RankObjects> Known(const std::vector<Rank>& ranks, Step step) const;
  // Puts what Known gave, but for what this process has refreshed since.
  void Take(Step step, std::vector<RankObjects> known);

  // What a source of a repair tells the destination: the bytes at `step` of the given ranks, as far as they are known.
  std::vector<uint8_t> Pack(const std::vector<Rank>& ranks, Step step) const;
  // Puts what Pack gave, but for what this process has refreshed since. kDataLoss when it is no such thing or of another
  // step.
  Status Unpack(const std::vector<uint8_t>& packed, Step step);
  // The same of an older step, to which it is not decided yet that all go back: newer ones stay until the next Put. Of what others
  // know of `owner`, whose Pack it was, and it of them, each one's own word counts.
  Status Recall(Rank owner, const std::vector<uint8_t>& packed, Step step);

 private:
  bool IsRefreshed(Rank rank, Step step) const;
  void Keep(Rank rank, Step step, MirroredObjects objects) KINTSUGI_REQUIRES(mutex_);

  static constexpr size_t kSteps = 2;
  mutable Mutex mutex_;
  std::map<Rank, std::map<Step, MirroredObjects>> by_rank_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<std::pair<Rank, Step>> refreshed_ KINTSUGI_GUARDED_BY(mutex_);  // whose bytes of which step
};

}  // namespace kintsugi
