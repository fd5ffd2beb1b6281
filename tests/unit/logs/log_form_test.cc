// What a line of the log is as fields, text and JSON.
#include "tools/logs/log_form.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "tools/logs/log_fields.h"
#include "tools/logs/logs.h"

namespace kintsugi::logs {
namespace {

using nlohmann::json;

constexpr std::chrono::system_clock::time_point kAt{std::chrono::milliseconds(1763820202512)};

std::string Time(const char* zone) {
  ::setenv("TZ", zone, 1);
  ::tzset();
  const std::string text = TimeText(kAt);
  ::unsetenv("TZ");
  ::tzset();
  return text;
}

TEST(LogFields, AreWhatLogLineWasGiven) {
  const LogFields given{{"event", "incident"}, {"cause", "exit: said \"no\" \\ and left"},
                        {"empty", ""},         {"ranks", "0,1"},
                        {"path", "C:\\x"},     {"why", "a=b c=d"}};
  const std::string line = LogLine(given[0].second, {{given[1].first, given[1].second},
                                                     {given[2].first, given[2].second},
                                                     {given[3].first, given[3].second},
                                                     {given[4].first, given[4].second},
                                                     {given[5].first, given[5].second}});
  EXPECT_EQ(ReadLogFields(line), given) << line;
}

TEST(LogFields, KeepWhatIsNoField) {
  EXPECT_EQ(ReadLogFields("event=x some words, a = b"), (LogFields{{"event", "x"}, {"text", "some words, a = b"}}));
  EXPECT_EQ(ReadLogFields("why=\"never closed"), (LogFields{{"why", "never closed"}}));
  EXPECT_TRUE(ReadLogFields("").empty());
}

TEST(LogForm, NamesTheTimeWithItsZone) {
  EXPECT_EQ(Time("UTC"), "2025-11-22T14:03:22.512+00:00");
  EXPECT_EQ(Time("<-0330>3:30"), "2025-11-22T10:33:22.512-03:30");
}

TEST(LogForm, TextIsTimeLevelWhoAndLine) {
  EXPECT_EQ(TextLine(kAt, LogLevel::kWarning, "node=0 job=J", "event=x"),
            TimeText(kAt) + " warning node=0 job=J event=x\n");
}

TEST(LogForm, JsonHasNumbersWhereTheyAre) {
  const json line = json::parse(JsonLine(kAt, LogLevel::kInfo, "node=0 job=\"a b\"",
                                         "event=exited rank=3 gen=2 last_good_step=none cause=\"exited with 1\""));
  EXPECT_EQ(line, (json{{"time", TimeText(kAt)},
                        {"level", "info"},
                        {"node", "0"},
                        {"job", "a b"},
                        {"event", "exited"},
                        {"rank", 3},
                        {"gen", 2},
                        {"last_good_step", "none"},
                        {"cause", "exited with 1"}}));
}

TEST(LogForm, WhoseALineIsCannotBeOverwrittenByIt) {
  const json line = json::parse(JsonLine(kAt, LogLevel::kInfo, "node=0 job=J", "event=run job=other time=never"));
  EXPECT_EQ(line["job"], "J");
  EXPECT_EQ(line["time"], TimeText(kAt));
}

TEST(LogForm, AnOutputLineOfAnyBytesIsJson) {
  const json line = json::parse(JsonOutputLine(kAt, "node=1 job=J", Rank(2), OutputStream::kStderr, "a\"b\xff\t"));
  EXPECT_EQ(line["rank"], 2);
  EXPECT_EQ(line["node"], "1");
  EXPECT_EQ(line["stream"], "stderr");
  EXPECT_EQ(line["line"], "a\"b\xEF\xBF\xBD\t");
  const json spare = json::parse(JsonOutputLine(kAt, "node=1", std::nullopt, OutputStream::kStdout, "x"));
  EXPECT_EQ(spare["spare"], true);
  EXPECT_FALSE(spare.contains("rank"));
}

TEST(Logs, EachNodeHasAFileOfItsOwn) {
  EXPECT_EQ(FileOfNode("/a.b/run.log", "2"), "/a.b/run-node2.log");
  EXPECT_EQ(FileOfNode("run", "controller-0"), "run-nodecontroller-0");
}

TEST(Logs, RefuseWhatIsNoLevelOrFormat) {
  EXPECT_EQ(Logs::Open({.level = "loud"}, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Logs::Open({.format = "xml"}, {}).status().code(), StatusCode::kInvalidArgument);
  const Status status = Logs::Open({.file = "/proc/no/run.log"}, {.node = "0"}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("--log-file"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace kintsugi::logs
