// Agreement: what all ranks of a generation must know of each other before one of them loads: each says a little, rank
// 0 puts it together, all learn the outcome.
//
// What: through the generation's store, in chunks that it takes. Two messages for each rank and chunk; nothing of the
// state goes this way. An error that any rank brings, or that putting together gives, is every rank's error.
// Errors: that error, with the rank in front; the store's.
// Threads: one a rank; every rank calls with the same names in the same order.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "callbacks/handlers/store.h"
#include "runtime/base/ids.h"

namespace kintsugi::resume {

using Bytes = std::vector<uint8_t>;
// What rank 0 makes of what all ranks said, by rank.
using Fold = std::function<Result<Bytes>(const std::vector<Bytes>& all)>;

class KINTSUGI_EXPORT Agreement {
 public:
  // `store` outlives it; not needed in a world of one.
  Agreement(Store* store, Rank self, int world_size, TimePoint deadline)
      : store_(store), self_(self), world_size_(world_size), deadline_(deadline) {}

  Result<Bytes> Reach(const std::string& name, const Result<Bytes>& own, const Fold& fold);
  Rank self() const { return self_; }

 private:
  Status Say(const std::string& name, const Result<Bytes>& what);
  Result<Result<Bytes>> Hear(const std::string& name);

  Store* const store_;
  const Rank self_;
  const int world_size_;
  const TimePoint deadline_;
};

}  // namespace kintsugi::resume
