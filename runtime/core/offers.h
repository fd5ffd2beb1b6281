// Offers: in which other worlds a trainer can go on, which one is chosen when ranks are lost for good, and who takes part
// where somebody names its size.
//
// What a trainer offers are data-parallel slices: ranks that together hold one whole replica of the model. One of them
// can be left out without a byte that moves. How the ranks that stay divide a batch follows from number and world size.
// Or any layout: each rank is a slice, and state is cut anew for every crew (RepairPlan::relayout).
//
// Rule: every slice that lost a rank for good leaves; then, until the size is one that is offered, more of them: first
// those that would need a repair, then those with the highest ranks. So the world is the largest that can be had.
// Threads: none; pure.
// Errors: kInvalidArgument for offers that do not fit together, naming a rank; kNotFound where no offered world is small
// enough, naming those that are offered.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/crew.h"
#include "runtime/core/messages.h"

namespace kintsugi::core {

// What the ranks that take part offer together.
struct OfferedWorlds {
  // Ascending by their first ranks; every rank of the crew is in one. Ranks that were lost with the controller before, with all that knew
  // their slices, stand in one together: whatever their slices were, they can only be left out as a whole.
  std::vector<std::vector<Rank>> all;
  size_t of_slice = 0;      // ranks of each, but of that one
  std::vector<int> worlds;  // ascending
  bool any_layout = false;  // in each of them state is cut anew, and who takes part matters to nobody
};

// offer(rank): what the rank, or its lost process, registered; null: nobody here knows. A rank of which nobody knows
// counts to the slice of those that name it. No slices: nobody offers anything.
Result<OfferedWorlds> OfferedBy(const Crew& crew, const std::function<const Offer*(Rank)>& offer);

// The crew without the slices of `lost`. `weak`: leaving it out saves a repair. REQUIRES: lost is not empty, and of the crew.
Result<Crew> ChooseSmaller(const Crew& crew, const OfferedWorlds& slices, const std::vector<Rank>& lost,
                           const std::function<bool(Rank)>& weak);

// Of so many ranks, fewer than now: the slices with the highest ranks leave. kNotFound: none is offered.
Result<Crew> ChooseFewer(const Crew& crew, const OfferedWorlds& slices, int ranks);
// Of so many ranks, more than now: slices of empty seats come, the lowest first. free(rank): a process may be started there;
// offer(rank): what the last one there registered; null: nobody here knows, and a slice is guessed, after those that are known.
// kNotFound: none is offered, or too few seats are free.
Result<Crew> ChooseMore(const Crew& crew, const OfferedWorlds& slices, int ranks, const std::function<bool(Rank)>& free,
                        const std::function<const Offer*(Rank)>& offer);

}  // namespace kintsugi::core
