#include "tools/report/record_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/report/sample_record.h"

namespace kintsugi {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> Keys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

TEST(SummaryJson, HasExactlyThePublishedKeysInOrder) {
  const Json summary = SummaryJson(FaultedRun());
  EXPECT_EQ(Keys(summary), (std::vector<std::string>{"schema", "world_size", "steps", "final_loss", "final_digest",
                                                     "losses", "samples_consumed", "samples_digest", "exit", "reason", "goodput",
                                                     "time", "saves", "inexact", "inexact_count", "not_struck", "worlds",
                                                     "incidents"}));
  EXPECT_EQ(summary["schema"], 1);
  ASSERT_EQ(summary["incidents"].size(), 2u);
  for (const Json& incident : summary["incidents"]) {
    EXPECT_EQ(
        Keys(incident),
        (std::vector<std::string>{
            "id",          "signal",     "fault",          "ranks",       "cause",       "step",      "attempts",
            "term",        "generation", "path",           "reasons",     "detected_ms", "parked_ms", "rebuilt_ms",
            "repaired_ms", "resumed_ms", "bytes_streamed", "stream_gbps", "sources",     "down_ms",   "steps_lost"}));
  }
  EXPECT_EQ(Keys(summary["incidents"][0]["reasons"][0]), (std::vector<std::string>{"rung", "reason"}));
}

TEST(SummaryJson, CarriesTheRecordsValues) {
  const RunRecord run = FaultedRun();
  const Json summary = SummaryJson(run);
  EXPECT_EQ(summary["losses"].get<std::vector<double>>(), run.losses);
  EXPECT_EQ(summary["final_digest"], run.final_digest);
  const Json& incident = summary["incidents"][1];
  EXPECT_EQ(incident["ranks"], Json({0, 3}));
  EXPECT_EQ(incident["sources"], Json({1, 2}));
  EXPECT_EQ(incident["step"], 63);
  EXPECT_EQ(incident["term"], 1);
  EXPECT_EQ(incident["generation"], 5);
  EXPECT_EQ(incident["attempts"], 3);
}

TEST(SummaryJson, ListsAreEmptyAndTimesNullWhereThereIsNothing) {
  RunRecord run;
  run.incidents.emplace_back();
  const Json summary = SummaryJson(run);
  EXPECT_EQ(summary["losses"], Json::array());
  EXPECT_TRUE(summary["final_loss"].is_null());
  const Json& incident = summary["incidents"][0];
  for (const char* list : {"ranks", "reasons", "sources"}) EXPECT_EQ(incident[list], Json::array()) << list;
  for (const char* time : {"detected_ms", "parked_ms", "rebuilt_ms", "repaired_ms", "resumed_ms", "stream_gbps"}) {
    EXPECT_TRUE(incident[time].is_null()) << time;
  }
  EXPECT_EQ(SummaryJson(RunRecord{})["incidents"], Json::array());
}

TEST(SummaryJson, TellsTheWorldsThatTheRunWentThrough) {
  const Json worlds = SummaryJson(ElasticRun())["worlds"];
  ASSERT_EQ(worlds.size(), 2u);
  EXPECT_EQ(Keys(worlds[0]), (std::vector<std::string>{"start_ns", "step", "ranks", "left", "came", "incident"}));
  EXPECT_EQ(worlds[0]["ranks"], 3);
  EXPECT_EQ(worlds[0]["left"], Json({2}));
  EXPECT_EQ(worlds[0]["incident"], 1);
  EXPECT_EQ(worlds[1]["came"], Json({2}));
  EXPECT_TRUE(worlds[1]["incident"].is_null());
  EXPECT_EQ(SummaryJson(FaultedRun())["worlds"], Json::array());
}

TEST(SummaryJson, ConvertsToTheUnorderedJsonType) {
  const nlohmann::json plain = SummaryJson(FaultedRun());
  const nlohmann::json both = {{"reference", SummaryJson(UndisturbedRun())}, {"faulted", plain}};
  EXPECT_EQ(both["reference"]["steps"], 80);
  EXPECT_EQ(both["faulted"]["incidents"].size(), 2u);
}

TEST(SummaryJson, HostileStringsCanBeDumped) {
  RunRecord run = FaultedRun();
  run.final_digest = "\xff\xfe\"\\\n\x01</script>";
  run.incidents[0].cause = std::string("a\0b\xc3", 4);
  const std::string text = SummaryJson(run).dump();
  const Json back = Json::parse(text);
  EXPECT_EQ(back["final_digest"], "\xEF\xBF\xBD\xEF\xBF\xBD\"\\\n\x01</script>");
  EXPECT_EQ(back["incidents"][0]["cause"], std::string("a\0b\xEF\xBF\xBD", 6));
}

TEST(SummaryJson, LossesKeepEveryBit) {
  RunRecord run;
  run.losses = {5.545177444479562, 0.1, 1e-300, static_cast<double>(3.14159274f), -0.0};
  const Json back = Json::parse(SummaryJson(run).dump());
  const auto losses = back["losses"].get<std::vector<double>>();
  ASSERT_EQ(losses.size(), run.losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i], run.losses[i]);
    EXPECT_EQ(std::signbit(losses[i]), std::signbit(run.losses[i]));
  }
}

TEST(RecordJson, GoesRoundUnchanged) {
  for (const RunRecord& run : {FaultedRun(), ElasticRun(), UndisturbedRun(), RunRecord{}}) {
    const Json json = Json::parse(RecordJson(run).dump());
    const Result<RunRecord> back = RecordFromText(json.dump());
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_TRUE(back.value() == run);
  }
}

TEST(RecordJson, LossesThatAreNotFiniteComeBackAsNotANumber) {
  RunRecord run;
  run.losses = {1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
  const Result<RunRecord> back = RecordFromText(RecordJson(run).dump());
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->losses[0], 1.0);
  EXPECT_TRUE(std::isnan(back->losses[1]));
  EXPECT_TRUE(std::isnan(back->losses[2]));
}

// A record with one thing wrong, at a place that the message must name.
struct Damage {
  const char* pointer;
  Json value;
};

TEST(RecordFromText, NamesTheFieldThatIsWrong) {
  const std::vector<Damage> damages = {
      {"/schema", 2},
      {"/world_size", -1},
      {"/world_size", 4294967296},
      {"/losses", "none"},
      {"/losses/3", "low"},
      {"/incidents/1/ranks/0", 3000000000},
      {"/incidents/0/detected_ms", "soon"},
      {"/incidents/0/reasons/2", 7},
      {"/lifetimes/0/cause", nullptr},
      {"/step_spans/5/start_ns", 1.5},
      {"/exit", true},
      {"/host", Json::array()},
  };
  for (const Damage& damage : damages) {
    Json json = RecordJson(FaultedRun());
    json[Json::json_pointer(damage.pointer)] = damage.value;
    const Result<RunRecord> read = RecordFromText(json.dump());
    ASSERT_FALSE(read.ok()) << damage.pointer;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument) << damage.pointer;
    EXPECT_NE(read.status().message().find(damage.pointer), std::string::npos) << read.status().ToString();
  }
}

// Records of earlier versions lack them, and pages can still be made of these.
const std::vector<std::string> kNewer = {
    "goodput", "time", "time_ns", "saves", "started_unix_ms", "hosts", "launcher_line", "utc_offset_minutes", "struck",
    "not_struck", "reason", "inexact", "inexact_count", "worlds"};

TEST(RecordFromText, TakesARecordOfAnEarlierVersion) {
  Json json = RecordJson(FaultedRun());
  for (const std::string& key : kNewer) json.erase(key);
  for (Json& incident : json["incidents"]) {
    incident.erase("down_ms");
    incident.erase("steps_lost");
  }
  const Result<RunRecord> read = RecordFromText(json.dump());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_FALSE(read->Goodput());
}

TEST(RecordFromText, RefusesAnyMissingField) {
  const Json whole = RecordJson(FaultedRun());
  for (const auto& item : whole.items()) {
    if (item.key() == "kind") continue;  // says what the file is; nothing depends on it
    if (std::find(kNewer.begin(), kNewer.end(), item.key()) != kNewer.end()) continue;
    Json json = whole;
    json.erase(item.key());
    const Result<RunRecord> read = RecordFromText(json.dump());
    ASSERT_FALSE(read.ok()) << item.key();
    EXPECT_NE(read.status().message().find(item.key()), std::string::npos);
  }
  EXPECT_FALSE(RecordFromText("null").ok());
  EXPECT_FALSE(RecordFromText("[1, 2]").ok());
}

TEST(ReadRecord, TellsAMissingFileFromATornOne) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "kintsugi-torn-record.json";
  std::filesystem::remove(path);
  EXPECT_EQ(ReadRecord(path).status().code(), StatusCode::kNotFound);
  const std::string whole = RecordJson(FaultedRun()).dump();
  std::ofstream(path) << whole.substr(0, whole.size() / 2);
  const Result<RunRecord> torn = ReadRecord(path);
  ASSERT_FALSE(torn.ok());
  EXPECT_EQ(torn.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(torn.status().message().find(path.string()), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kintsugi
