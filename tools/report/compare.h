// Whether two runs ended in the same bits: the promise a faulted run is held to.
//
// Threads: pure functions.
// Errors: none.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/report/record.h"

namespace kintsugi {

struct RunComparison {
  bool identical = false;
  bool same_final_state = false;  // final_digest, known on both sides
  bool same_losses = false;       // every committed step, bit for bit
  bool same_samples = false;      // count and digest
  // First step whose loss differs, or the first one that only one of the runs has.
  std::optional<uint64_t> first_difference;
  double largest_loss_difference = 0;  // over the steps both have and whose losses are finite
};

// An absent digest equals nothing: what is not known is not proven.
RunComparison Compare(const RunRecord& faulted, const RunRecord& reference);

}  // namespace kintsugi
