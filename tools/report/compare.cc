#include "tools/report/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kintsugi {
namespace {

bool Proven(const std::string& digest, const std::string& other) { return !digest.empty() && digest == other; }

}  // namespace

RunComparison Compare(const RunRecord& faulted, const RunRecord& reference) {
  RunComparison result;
  const auto [low, high] = std::minmax(faulted.resumed_from, reference.resumed_from);
  const uint64_t last = std::min(faulted.last_step(), reference.last_step());
  if (low != high) result.first_difference = low + 1;  // a step that only one of them computed
  for (uint64_t step = high + 1; step <= last; ++step) {
    const double a = *faulted.LossOf(step);
    const double b = *reference.LossOf(step);
    if (std::bit_cast<uint64_t>(a) != std::bit_cast<uint64_t>(b) && !result.first_difference)
      result.first_difference = step;
    if (std::isfinite(a - b))
      result.largest_loss_difference = std::max(result.largest_loss_difference, std::abs(a - b));
  }
  if (!result.first_difference && faulted.last_step() != reference.last_step()) result.first_difference = last + 1;
  result.same_losses = !result.first_difference && faulted.steps == reference.steps;
  result.same_final_state = Proven(faulted.final_digest, reference.final_digest);
  result.same_samples = faulted.samples_consumed == reference.samples_consumed &&
                        Proven(faulted.samples_digest, reference.samples_digest);
  result.identical = result.same_losses && result.same_final_state && result.same_samples;
  return result;
}

}  // namespace kintsugi
