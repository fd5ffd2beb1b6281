#include "tools/observe/run_metrics.h"

#include <gtest/gtest.h>

#include "tools/observe/rising_times.h"

namespace kintsugi::observe {
namespace {

bool Has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

NodeStatus Leading() {
  NodeStatus status{
      .job = "j", .version = "0.1 (commit a)", .leads = true, .hears_leader = true, .term = {3, 1}, .processes = 2};
  RunStatus run;
  run.at = TimePoint(std::chrono::seconds(100));
  run.phase = core::Phase::kRunning;
  run.step = Step(7);
  run.time = {.total = std::chrono::seconds(100),
              .starting = std::chrono::seconds(10),
              .down = std::chrono::seconds(5),
              .redone = std::chrono::seconds(5)};
  run.over.by_cause[{core::FaultKind::kProcessExit, Rung::kRespawn}] = 2;
  run.over.by_cause[{core::FaultKind::kHang, std::nullopt}] = 1;
  run.over.in_phase[core::Phase::kRebuild] = std::chrono::milliseconds(1500);
  run.over.bytes_streamed = 4096;
  run.saves.made = 1;
  run.saves.newest = {{Step(4), "d"}, TimePoint(std::chrono::seconds(70))};
  run.ranks.resize(2);
  run.ranks[0].life = core::ControllerCore::Life::kReady;
  run.ranks[1] = {
      .rank = Rank(1), .life = core::ControllerCore::Life::kStarting, .late = std::chrono::milliseconds(30)};
  run.nodes_away = {2};
  run.spare_nodes = {3};
  run.hosts = {{.name = "1", .host = "gpu-6", .address = "10.0.0.6", .here = true},
               {.name = "2", .host = "gpu-7", .address = "10.0.0.7"}};
  status.run = run;
  return status;
}

TEST(RunMetrics, TellTheWholeRunWhereTheNodeLeads) {
  const std::string text = MetricsOf(Leading(),
                                     {.times = {.total = std::chrono::seconds(100), .down = std::chrono::seconds(6)},
                                      .linger = std::chrono::seconds(30)},
                                     Dialect::kOpenMetrics);
  for (const char* line : {"kintsugi_info{run=\"j\",node=\"0\",version=\"0.1 (commit a)\"} 1",
                           "kintsugi_leading 1",
                           "kintsugi_controller_term 3",
                           "kintsugi_phase{phase=\"RUNNING\"} 1",
                           "kintsugi_phase{phase=\"LOCK\"} 0",
                           "kintsugi_step 7",
                           "kintsugi_goodput_ratio 0.8",
                           "kintsugi_spent_seconds{on=\"useful\"} 80",
                           "kintsugi_spent_seconds{on=\"down\"} 5",
                           "kintsugi_recovery_seconds_total{phase=\"REBUILD\"} 1.5",
                           "kintsugi_streamed_bytes_total 4096",
                           "kintsugi_saves_total{outcome=\"made\"} 1",
                           "kintsugi_checkpoint_age_seconds 30",
                           "kintsugi_ranks{state=\"ready\"} 1",
                           "kintsugi_ranks{state=\"starting\"} 1",
                           "kintsugi_run_seconds_total 100",
                           "kintsugi_lost_seconds_total{on=\"down\"} 6",
                           "kintsugi_lost_seconds_total{on=\"paused\"} 0",
                           "kintsugi_linger_seconds 30",
                           "kintsugi_paused 0",
                           "kintsugi_nodes_away 1",
                           "kintsugi_spare_nodes 1",
                           "kintsugi_node_away{node=\"2\",host=\"gpu-7\",address=\"10.0.0.7\"} 1",
                           "kintsugi_rank_late_seconds{rank=\"1\"} 0.03"})
    EXPECT_TRUE(Has(text, line)) << line << "\n" << text;
  const std::string rung(core::RungName(Rung::kRespawn)), exit(core::FaultKindName(core::FaultKind::kProcessExit));
  EXPECT_TRUE(Has(text, "kintsugi_incidents_total{signal=\"" + exit + "\",rung=\"" + rung + "\"} 2")) << text;
  EXPECT_NE(text.find(",rung=\"none\"} 1\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("kintsugi_exit_code"), std::string::npos) << text;
  EXPECT_EQ(text.find("gpu-6"), std::string::npos) << "a node that is here is away: " << text;
}

TEST(RunMetrics, TellHowItEnded) {
  const std::string text = MetricsOf({.job = "j", .node = 1}, {.exit_code = 75}, Dialect::kOpenMetrics);
  for (const char* line :
       {"kintsugi_info{run=\"j\",node=\"1\",version=\"\"} 1", "kintsugi_exit_code{run=\"j\"} 75", "kintsugi_leading 0"})
    EXPECT_TRUE(Has(text, line)) << line << "\n" << text;
}

TEST(RisingTimes, NeverFallButWithAnotherStart) {
  using std::chrono::seconds;
  RisingTimes times;
  times.Take({.total = seconds(100), .down = seconds(10), .saving = seconds(5)});
  // The save is part of what was thrown away.
  times.Take({.total = seconds(110), .down = seconds(12), .redone = seconds(8), .saving = seconds(2)});
  EXPECT_EQ(times.risen().total, seconds(110));
  EXPECT_EQ(times.risen().down, seconds(12));
  EXPECT_EQ(times.risen().redone, seconds(8));
  EXPECT_EQ(times.risen().saving, seconds(5));
  times.Take({.total = seconds(3), .starting = seconds(3)});
  EXPECT_EQ(times.risen().total, seconds(3));
  EXPECT_EQ(times.risen().starting, seconds(3));
  EXPECT_EQ(times.risen().down, seconds(0));
}

TEST(RunMetrics, TellOnlyTheNodeWhereAnotherLeads) {
  NodeStatus status = Leading();
  status.leads = false;
  status.run.reset();
  status.node = 2;
  const std::string text = MetricsOf(status, {}, Dialect::kOpenMetrics);
  EXPECT_TRUE(Has(text, "kintsugi_leading 0")) << text;
  EXPECT_TRUE(Has(text, "kintsugi_node_processes 2")) << text;
  EXPECT_EQ(text.find("kintsugi_step"), std::string::npos);
  EXPECT_EQ(text.find("kintsugi_goodput"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::observe
