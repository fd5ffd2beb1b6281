// MirrorStore: mirrored objects' bytes, of this rank and of its partners, for the newest two steps.
//
// Two steps, because survivors may meet at the step they just mirrored or at the one before.
// Threads: any; one mutex.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "replica/stream/link.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

class MirrorStore {
 public:
  // Steps after `step` belong to an attempt that was given up: they go.
  void Put(Rank rank, Step step, std::vector<uint8_t> bytes);
  // This rank's own, newer than what its partners have of the same step: these stay whatever a partner tells of it.
  void Refresh(Rank self, Step step, std::vector<uint8_t> bytes);
  std::optional<std::vector<uint8_t>> Get(Rank rank, Step step) const;

  // What a source of a repair tells the destination: the bytes at `step` of the given ranks, as far as they are known.
  std::vector<uint8_t> Pack(const std::vector<Rank>& ranks, Step step) const;
  // Puts what Pack gave, but for what this process has refreshed since. kDataLoss when it is no such thing or of another
  // step.
  Status Unpack(const std::vector<uint8_t>& packed, Step step);

 private:
  bool IsRefreshed(Rank rank, Step step) const;
  void Keep(Rank rank, Step step, std::vector<uint8_t> bytes) KINTSUGI_REQUIRES(mutex_);

  static constexpr size_t kSteps = 2;
  mutable Mutex mutex_;
  std::map<Rank, std::map<Step, std::vector<uint8_t>>> by_rank_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<std::pair<Rank, Step>> refreshed_ KINTSUGI_GUARDED_BY(mutex_);  // whose bytes of which step
};

// One side of an exchange: gives `mine`, takes the peer's bytes of the same step. The lower rank sends first.
// kFailedPrecondition when the peer is at another step.
Status ExchangeMirrored(Link& link, Rank self, Step step, const std::vector<uint8_t>& mine,
                        std::vector<uint8_t>* theirs, TimePoint deadline);

}  // namespace kintsugi
