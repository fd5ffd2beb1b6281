#include "tools/report/decimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/random.h"

namespace kintsugi {
namespace {

std::vector<double> Noise(size_t count) {
  Random random(11);
  std::vector<double> values(count);
  for (double& value : values) value = random.Unit();
  return values;
}

TEST(DecimateCurve, LeavesShortCurvesAlone) {
  const std::vector<CurvePoint> points = DecimateCurve({3, 2, 1}, 4);
  EXPECT_EQ(points, (std::vector<CurvePoint>{{1, 3}, {2, 2}, {3, 1}}));
  EXPECT_TRUE(DecimateCurve({}, 4).empty());
}

TEST(DecimateCurve, StaysWithinItsBoundAndInOrder) {
  for (const size_t count : {5u, 601u, 1000u, 100000u}) {
    for (const size_t limit : {4u, 5u, 600u}) {
      const std::vector<CurvePoint> points = DecimateCurve(Noise(count), limit);
      EXPECT_LE(points.size(), limit);
      EXPECT_EQ(points.front().step, 1u);
      EXPECT_EQ(points.back().step, count);
      for (size_t i = 1; i < points.size(); ++i) EXPECT_LT(points[i - 1].step, points[i].step);
    }
  }
}

TEST(DecimateCurve, KeepsASingleSpikeAmongAHundredThousandSteps) {
  std::vector<double> values = Noise(100000);
  values[54321] = 9;
  values[77777] = -9;
  const std::vector<CurvePoint> points = DecimateCurve(values, 100);
  EXPECT_NE(std::find(points.begin(), points.end(), CurvePoint{54322, 9}), points.end());
  EXPECT_NE(std::find(points.begin(), points.end(), CurvePoint{77778, -9}), points.end());
}

TEST(DecimateCurve, AStretchWithoutAFiniteLossIsAGap) {
  std::vector<double> values(1000, 1.0);
  std::fill(values.begin() + 400, values.begin() + 600, std::numeric_limits<double>::quiet_NaN());
  const std::vector<CurvePoint> points = DecimateCurve(values, 42);
  EXPECT_TRUE(std::any_of(points.begin(), points.end(), [](const CurvePoint& p) { return std::isnan(p.value); }));
  for (const CurvePoint& point : points) {
    const bool inside = point.step > 400 && point.step <= 600;
    EXPECT_TRUE(inside || point.value == 1.0) << point.step;
  }
}

std::vector<StepSpan> Steps(int ranks, uint64_t count) {
  std::vector<StepSpan> spans;
  for (uint64_t step = 1; step <= count; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto start = static_cast<int64_t>(step) * 1000;
      spans.push_back({Rank(rank), Step(step), Step(step), start, start + 900});
    }
  }
  return spans;
}

TEST(CondenseSteps, LeavesShortRunsAlone) { EXPECT_EQ(CondenseSteps(Steps(2, 50), {}, 50).size(), 100u); }

TEST(CondenseSteps, CoversEveryStepOnceWithinItsBound) {
  const std::vector<StepSpan> condensed = CondenseSteps(Steps(3, 100000), {}, 500);
  EXPECT_LE(condensed.size(), 3u * 500);
  for (int rank = 0; rank < 3; ++rank) {
    uint64_t next = 1;
    for (const StepSpan& span : condensed) {
      if (span.rank != Rank(rank)) continue;
      EXPECT_EQ(span.step.value(), next);
      EXPECT_EQ(span.end_ns, static_cast<int64_t>(span.last_step.value()) * 1000 + 900);
      next = span.last_step.value() + 1;
    }
    EXPECT_EQ(next, 100001u);
  }
}

TEST(CondenseSteps, KeepsSingleStepsBesideAnIncident) {
  ReportedIncident incident;
  incident.fault_ns = 70000 * 1000 + 500;
  incident.resumed_ms = 0.0001;
  const std::vector<StepSpan> condensed = CondenseSteps(Steps(1, 100000), {incident}, 500);
  EXPECT_LE(condensed.size(), 520u);
  for (uint64_t step = 69995; step <= 70005; ++step) {
    EXPECT_TRUE(std::any_of(condensed.begin(), condensed.end(), [&](const StepSpan& span) {
      return span.step == Step(step) && span.last_step == Step(step);
    })) << step;
  }
}

TEST(CondenseSteps, ARunFullOfIncidentsIsStillBounded) {
  std::vector<ReportedIncident> incidents(5000);
  for (size_t i = 0; i < incidents.size(); ++i) incidents[i].fault_ns = static_cast<int64_t>(i) * 20 * 1000;
  EXPECT_LE(CondenseSteps(Steps(1, 100000), incidents, 500).size(), 500u);
}

TEST(CondenseSteps, MayBeAppliedToItsOwnResult) {
  std::vector<StepSpan> spans = CondenseSteps(Steps(1, 1000), {}, 100);
  for (const StepSpan& span : Steps(1, 2000)) {
    if (span.step > Step(1000)) spans.push_back(span);
  }
  const std::vector<StepSpan> again = CondenseSteps(spans, {}, 100);
  EXPECT_LE(again.size(), 100u);
  EXPECT_EQ(again.front().step, Step(1));
  EXPECT_EQ(again.back().last_step, Step(2000));
}

}  // namespace
}  // namespace kintsugi
