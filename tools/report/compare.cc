#include "tools/report/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kintsugi {
namespace {

bool Proven(const std::string& digest, const std::string& other) { return !digest.empty() && digest == other; }

}  // namespace

Comparison Compare(const RunRecord& faulted, const RunRecord& reference) {
  Comparison result;
  const size_t common = std::min(faulted.losses.size(), reference.losses.size());
  for (size_t i = 0; i < common; ++i) {
    const double a = faulted.losses[i];
    const double b = reference.losses[i];
    if (std::bit_cast<uint64_t>(a) != std::bit_cast<uint64_t>(b) && !result.first_difference) {
      result.first_difference = i + 1;
    }
    if (std::isfinite(a - b))
      result.largest_loss_difference = std::max(result.largest_loss_difference, std::abs(a - b));
  }
  if (!result.first_difference && faulted.losses.size() != reference.losses.size()) {
    result.first_difference = common + 1;
  }
  result.same_losses = !result.first_difference && faulted.steps == reference.steps;
  result.same_final_state = Proven(faulted.final_digest, reference.final_digest);
  result.same_samples = faulted.samples_consumed == reference.samples_consumed &&
                        Proven(faulted.samples_digest, reference.samples_digest);
  result.identical = result.same_losses && result.same_final_state && result.same_samples;
  return result;
}

}  // namespace kintsugi
