#include "tools/report/decimate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "runtime/base/check.h"
#include "tools/report/extent.h"

namespace kintsugi {
namespace {

// How many single steps are kept on either side of an incident.
constexpr size_t kStepsBesideIncident = 8;

// Appends the smallest and the largest finite value of losses[begin, end), in the order of their steps.
void AppendExtremes(const std::vector<double>& losses, size_t begin, size_t end, std::vector<CurvePoint>* points) {
  size_t low = end;
  size_t high = end;
  for (size_t i = begin; i < end; ++i) {
    if (!std::isfinite(losses[i])) continue;
    if (low == end || losses[i] < losses[low]) low = i;
    if (high == end || losses[i] > losses[high]) high = i;
  }
  if (low == end) {
    points->push_back({begin + 1, std::numeric_limits<double>::quiet_NaN()});
    return;
  }
  const auto [first, second] = std::minmax(low, high);
  points->push_back({first + 1, losses[first]});
  if (second != first) points->push_back({second + 1, losses[second]});
}

// One rank's spans, sorted by start: which of them lie beside an incident.
std::vector<bool> SinglesToKeep(const std::vector<StepSpan>& spans, const std::vector<ReportedIncident>& incidents) {
  std::vector<bool> keep(spans.size(), false);
  for (const ReportedIncident& incident : incidents) {
    const TimeExtent extent = IncidentExtent(incident);
    const auto first = std::partition_point(spans.begin(), spans.end(),
                                            [&](const StepSpan& span) { return span.end_ns < extent.start_ns; });
    const auto last =
        std::partition_point(first, spans.end(), [&](const StepSpan& span) { return span.start_ns <= extent.end_ns; });
    const size_t begin = static_cast<size_t>(first - spans.begin());
    const size_t end = static_cast<size_t>(last - spans.begin());
    std::fill(keep.begin() + (begin > kStepsBesideIncident ? begin - kStepsBesideIncident : 0),
              keep.begin() + std::min(spans.size(), end + kStepsBesideIncident), true);
  }
  return keep;
}

void CondenseRank(const std::vector<StepSpan>& spans, const std::vector<ReportedIncident>& incidents, size_t limit,
                  std::vector<StepSpan>* out) {
  std::vector<bool> keep = SinglesToKeep(spans, incidents);
  size_t kept = static_cast<size_t>(std::count(keep.begin(), keep.end(), true));
  if (kept > limit / 2) {  // incidents everywhere: none of them can have its single steps
    keep.assign(spans.size(), false);
    kept = 0;
  }
  const size_t room = limit - kept;
  const size_t stride = std::max<size_t>(1, (spans.size() - kept + room - 1) / room);
  size_t merged = 0;  // spans in the one at out->back(); 0 when that one must not grow
  for (size_t i = 0; i < spans.size(); ++i) {
    if (keep[i] || merged == 0 || merged == stride) {
      out->push_back(spans[i]);
      merged = keep[i] ? 0 : 1;
      continue;
    }
    out->back().last_step = std::max(out->back().last_step, spans[i].last_step);
    out->back().end_ns = std::max(out->back().end_ns, spans[i].end_ns);
    ++merged;
  }
}

}  // namespace

std::vector<CurvePoint> DecimateCurve(const std::vector<double>& losses, size_t max_points) {
  KINTSUGI_CHECK(max_points >= 4, "a curve needs room for its ends and one stretch");
  std::vector<CurvePoint> points;
  if (losses.size() <= max_points) {
    for (size_t i = 0; i < losses.size(); ++i) points.push_back({i + 1, losses[i]});
    return points;
  }
  const size_t inner = losses.size() - 2;
  const size_t stretches = (max_points - 2) / 2;
  points.push_back({1, losses.front()});
  for (size_t i = 0; i < stretches; ++i) {
    AppendExtremes(losses, 1 + inner * i / stretches, 1 + inner * (i + 1) / stretches, &points);
  }
  points.push_back({losses.size(), losses.back()});
  return points;
}

std::vector<StepSpan> CondenseSteps(std::vector<StepSpan> spans, const std::vector<ReportedIncident>& incidents,
                                    size_t max_per_rank) {
  std::sort(spans.begin(), spans.end(), [](const StepSpan& a, const StepSpan& b) {
    return std::tie(a.rank, a.start_ns, a.end_ns) < std::tie(b.rank, b.start_ns, b.end_ns);
  });
  std::vector<StepSpan> out;
  for (auto begin = spans.begin(); begin != spans.end();) {
    const auto end = std::find_if(begin, spans.end(), [&](const StepSpan& span) { return span.rank != begin->rank; });
    if (static_cast<size_t>(end - begin) <= max_per_rank) {
      out.insert(out.end(), begin, end);
    } else {
      CondenseRank({begin, end}, incidents, std::max<size_t>(max_per_rank, 1), &out);
    }
    begin = end;
  }
  return out;
}

}  // namespace kintsugi
