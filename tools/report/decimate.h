// Keeps long runs small: thins curves and step spans down to what a reader can see, without hiding what stands out.
//
// Threads: pure functions.
// Invariants: the first and the last point stay; so does the largest and the smallest value of every stretch that is
//   thinned; the time a rank was stepping is covered by spans as it was before, within a rank's run of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/report/record.h"

namespace kintsugi {

struct CurvePoint {
  uint64_t step = 0;
  double value = 0;
  bool operator==(const CurvePoint&) const = default;
};

// `losses` as at most `max_points` points in the order of steps, values that are not finite included as gaps (one per
// stretch that holds nothing else). REQUIRES: max_points >= 4.
std::vector<CurvePoint> DecimateCurve(const std::vector<double>& losses, size_t max_points);

// The spans of each rank, sorted by rank and start, with neighbours merged until a rank has at most about
// `max_per_rank`. Steps near an incident stay single. The recorder calls it now and then to bound its memory, the trace
// writer once.
std::vector<StepSpan> CondenseSteps(std::vector<StepSpan> spans, const std::vector<ReportedIncident>& incidents,
                                    size_t max_per_rank);

}  // namespace kintsugi
