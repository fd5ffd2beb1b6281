#include "tools/report/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/random.h"
#include "tests/unit/report/sample_record.h"

namespace kintsugi {
namespace {

using Json = nlohmann::json;

// Events other than metadata, by track, in the order of the file.
std::map<int64_t, std::vector<Json>> Tracks(const Json& trace) {
  std::map<int64_t, std::vector<Json>> tracks;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "M") tracks[event["tid"].get<int64_t>()].push_back(event);
  }
  return tracks;
}

// Whether each span ends before the one around it does, and starts come in order: what Perfetto asks of a track.
testing::AssertionResult WellFormed(const std::vector<Json>& events) {
  std::vector<int64_t> open;
  int64_t last = INT64_MIN;
  for (const Json& event : events) {
    const auto start = event["ts"].get<int64_t>();
    if (start < last) return testing::AssertionFailure() << "out of order: " << event;
    last = start;
    if (event["ph"] != "X") continue;
    const auto end = start + event["dur"].get<int64_t>();
    if (end < start) return testing::AssertionFailure() << "ends before it starts: " << event;
    while (!open.empty() && open.back() <= start) open.pop_back();
    if (!open.empty() && open.back() < end) return testing::AssertionFailure() << "sticks out: " << event;
    open.push_back(end);
  }
  return testing::AssertionSuccess();
}

TEST(TraceJson, HasANamedTrackForTheControllerAndEachRank) {
  const Json trace = Json::parse(TraceJson(FaultedRun()));
  std::map<int64_t, std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    EXPECT_TRUE(event.contains("name") && event.contains("ph") && event.contains("pid") && event.contains("tid"));
    if (event["name"] == "thread_name") names[event["tid"].get<int64_t>()] = event["args"]["name"];
  }
  EXPECT_EQ(names, (std::map<int64_t, std::string>{
                       {1, "controller"}, {2, "rank 0"}, {3, "rank 1"}, {4, "rank 2"}, {5, "rank 3"}}));
  for (const auto& [tid, events] : Tracks(trace)) EXPECT_TRUE(names.contains(tid)) << "event on an unnamed track";
}

TEST(TraceJson, SpansOfEveryTrackAreSortedAndNest) {
  for (const RunRecord& run : {FaultedRun(), ElasticRun(), UndisturbedRun()}) {
    const Json trace = Json::parse(TraceJson(run));
    for (const auto& [tid, events] : Tracks(trace)) EXPECT_TRUE(WellFormed(events)) << "track " << tid;
  }
}

TEST(TraceJson, HowManyRanksTookPartIsALine) {
  std::vector<int> ranks;
  const Json trace = Json::parse(TraceJson(ElasticRun()));
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "C") ranks.push_back(event["args"]["ranks"]);
  EXPECT_EQ(ranks, (std::vector<int>{4, 3, 4}));
}

TEST(TraceJson, PhasesLieInsideTheirIncident) {
  const RunRecord run = FaultedRun();
  const Json trace = Json::parse(TraceJson(run));
  std::vector<std::string> seen;
  std::map<uint64_t, std::pair<int64_t, int64_t>> incidents;
  const std::vector<Json> controller = Tracks(trace)[kControllerTrack];
  for (const Json& event : controller) {
    const auto start = event["ts"].get<int64_t>();
    const auto end = start + event["dur"].get<int64_t>();
    if (event["cat"] == "incident") incidents[incidents.size() + 1] = {start, end};
    if (event["cat"] != "phase") continue;
    const auto& around = incidents.at(event["args"]["incident"].get<uint64_t>());
    EXPECT_GE(start, around.first);
    EXPECT_LE(end, around.second);
    seen.push_back(event["name"]);
  }
  EXPECT_EQ(incidents.size(), 2u);
  EXPECT_EQ(seen.size(), run.incidents[0].phases.size() + run.incidents[1].phases.size());
  EXPECT_EQ(incidents.at(1).first, run.incidents[0].fault_ns / 1000);
}

TEST(TraceJson, TheFaultIsMarkedOnItsRank) {
  const Json trace = Json::parse(TraceJson(FaultedRun()));
  const std::vector<Json> events = Tracks(trace)[kRankTrackBase + 2];
  const auto fault = std::find_if(events.begin(), events.end(), [](const Json& event) { return event["ph"] == "i"; });
  ASSERT_NE(fault, events.end());
  EXPECT_EQ((*fault)["name"], "fault: kill");
}

TEST(TraceJson, LongRunsStaySmall) {
  RunRecord run;
  run.world_size = 4;
  for (uint64_t step = 1; step <= 100000; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      const auto start = static_cast<int64_t>(step) * 20'000'000;
      run.step_spans.push_back({Rank(rank), Step(step), Step(step), start, start + 19'000'000});
    }
  }
  EXPECT_LT(TraceJson(run).size(), 2u << 20);
}

TEST(TraceJson, HostileRecordsGiveAValidTrace) {
  RunRecord run = FaultedRun();
  run.world_size = 0xffffffff;
  run.command_line = {"\xff\"</script>", std::string("\0", 1)};
  run.incidents[0].fault = "\xf0\x28 \"quoted\"";
  run.incidents[0].ranks = {Rank(-5), Rank(1 << 30), Rank(2)};
  run.incidents[0].phases[0].end_ns = INT64_MIN / 2;
  run.incidents[0].resumed_ms = 1e300;
  run.lifetimes.push_back({Rank(-1), Incarnation(1), 5, 1, "negative"});
  run.step_spans.push_back({Rank(1 << 30), Step(1), Step(1), 0, 1});
  const Json trace = Json::parse(TraceJson(run, {.max_ranks = 4}));
  for (const auto& [tid, events] : Tracks(trace)) EXPECT_TRUE(WellFormed(events)) << "track " << tid;
}

TEST(NestSlices, AStepEndsWhereTheIncidentBegins) {
  const auto nested = NestSlices({{0, 100, 1, "step", "", {}}, {60, 200, 1, "incident", "", {}}});
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_EQ(nested[0].end_ns, 60);
  EXPECT_TRUE(nested[0].args.contains("measured_ms"));
  EXPECT_EQ(nested[1].end_ns, 200);
  EXPECT_FALSE(nested[1].args.contains("measured_ms"));
}

TEST(NestSlices, APhaseEndsWithItsIncident) {
  const auto nested = NestSlices({{0, 100, 1, "incident", "", {}}, {60, 120, 2, "phase", "", {}}});
  EXPECT_EQ(nested[0].end_ns, 100);
  EXPECT_EQ(nested[1].end_ns, 100);
}

TEST(NestSlices, RandomSpansAlwaysNestAndNoneIsLost) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    std::vector<TraceSlice> slices;
    for (uint64_t i = 0, count = random.Below(40); i < count; ++i) {
      const auto start = static_cast<int64_t>(random.Below(60)) * 1000;
      slices.push_back({start,
                        start + static_cast<int64_t>(random.Below(30)) * 1000 - 2000,
                        static_cast<int>(random.Below(3)),
                        std::to_string(i),
                        "",
                        {}});
    }
    const std::vector<TraceSlice> nested = NestSlices(slices);
    ASSERT_EQ(nested.size(), slices.size());
    std::vector<Json> events;
    std::set<std::string> names;
    for (const TraceSlice& slice : nested) {
      events.push_back({{"ph", "X"}, {"ts", slice.start_ns}, {"dur", slice.end_ns - slice.start_ns}});
      names.insert(slice.name);
    }
    ASSERT_EQ(names.size(), slices.size());
    ASSERT_TRUE(WellFormed(events)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kintsugi
