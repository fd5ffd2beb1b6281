// What `kintsugi status --watch` draws.
#include "tools/runs/watch_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kintsugi::runs {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

json Rank(int rank, const char* life = "ready") {
  json out{{"rank", rank}, {"life", life}, {"step", 1234}, {"phase", "forward"}, {"late_ms", nullptr}};
  return out;
}

WatchView View(int ranks) {
  WatchView view;
  json list = json::array();
  for (int i = 0; i < ranks; ++i) list.push_back(Rank(i));
  view.status = {{"job", "J"},
                 {"phase", "RUNNING"},
                 {"step", 1234},
                 {"loss", 2.34567},
                 {"term", 1},
                 {"generation", 3},
                 {"incidents", 2},
                 {"time",
                  {{"total_s", 100.0},
                   {"starting_s", 10.0},
                   {"down_s", 5.0},
                   {"redone_s", 5.0},
                   {"saving_s", 10.0},
                   {"useful_s", 70.0},
                   {"goodput", 0.7}}},
                 {"saves", {{"made", 3}, {"failed", 1}, {"newest", {{"step", 1200}, {"age_s", 61.0}}}}},
                 {"spares", {{"wanted", 2}, {"waiting", 1}}},
                 {"nodes_away", {1}},
                 {"ranks", list}};
  view.incidents = {{{"id", 1},
                     {"over", true},
                     {"signal", "exit"},
                     {"ranks", {2}},
                     {"cause", "killed by signal 9"},
                     {"step", 60},
                     {"steps_lost", 1},
                     {"down_ms", 120.4},
                     {"path", "respawn"}},
                    {{"id", 2},
                     {"over", false},
                     {"signal", "silence"},
                     {"ranks", {0, 1}},
                     {"cause", "no sign of life"},
                     {"step", nullptr},
                     {"down_ms", 40.0},
                     {"path", nullptr}}};
  view.clock = "12:00:01";
  return view;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(WatchScreen, TellsTheRunAtAGlance) {
  const std::string text = Joined(WatchScreen(View(4), {100, 24}, false));
  EXPECT_THAT(text,
              AllOf(HasSubstr("RUNNING  step 1234  loss 2.3457"), HasSubstr("12:00:01\n"),
                    HasSubstr("job J  term 1  generation 3"), HasSubstr("goodput 70.0 % of 100 s"),
                    HasSubstr("s saving 10.0 s"), HasSubstr("checkpoint of step 1200, 61 s old; 3 made, 1 failed"),
                    HasSubstr("spares 1 of 2; node 1 is away")));
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 4 of 4 ready"), HasSubstr("3 forward"), HasSubstr("incidents 2"),
                          HasSubstr("1  step 60  rank 2  exit  respawn, 120 ms, 1 steps lost  killed by signal 9"),
                          HasSubstr("2  step 0  rank 0,1  silence  under way for 40 ms")));
  EXPECT_LT(text.find("under way"), text.find("respawn")) << "the newest first";
}

TEST(WatchScreen, TheBarIsInProportion) {
  const auto lines = WatchScreen(View(1), {200, 24}, false);
  EXPECT_THAT(lines, Contains(HasSubstr("[" + std::string(42, '#') + "......!!!~~~ssssss]")));
}

TEST(WatchScreen, NeverLeavesItsBounds) {
  WatchView view = View(700);
  view.trouble = std::string(300, 'x');
  view.status["job"] = std::string(500, 'j') + "\x1b[31m\n";
  for (const int columns : {1, 7, 20, 21, 43, 80, 211})
    for (const int rows : {1, 2, 5, 8, 24, 100}) {
      const auto lines = WatchScreen(view, {columns, rows}, false);
      EXPECT_LE(lines.size(), static_cast<size_t>(rows));
      for (const std::string& line : lines) {
        EXPECT_LE(line.size(), static_cast<size_t>(columns));
        EXPECT_EQ(line.find('\x1b'), std::string::npos) << "what a run is called draws nothing";
      }
    }
}

TEST(WatchScreen, ShowsWhoIsUnwellWhereNotAllFindAPlace) {
  WatchView view = View(700);
  view.status["ranks"][699]["life"] = "dead";
  view.status["ranks"][650]["late_ms"] = 300.0;
  const std::string text = Joined(WatchScreen(view, {80, 24}, false));
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 699 of 700 ready; "), HasSubstr("are not shown"), HasSubstr("699 dead"),
                          HasSubstr("650 300 ms late")));
  EXPECT_LT(text.find("699 dead"), text.find("650 300 ms late"));
  EXPECT_LT(text.find("650 300 ms late"), text.find("  0 forward"));
}

TEST(WatchScreen, ColoursOnlyWhereAsked) {
  EXPECT_THAT(Joined(WatchScreen(View(2), {80, 24}, true)), HasSubstr("\x1b[32mRUNNING\x1b[0m"));
  EXPECT_THAT(Joined(WatchScreen(View(2), {80, 24}, false)), Not(HasSubstr("\x1b")));
}

TEST(WatchScreen, TakesAnAnswerThatLacksEverything) {
  for (const json& status : {json(), json::object(), json{{"ranks", 7}, {"time", "x"}, {"saves", nullptr}}}) {
    WatchView view;
    view.status = status.is_null() ? json::object() : status;
    EXPECT_LE(WatchScreen(view, {80, 24}, true).size(), 24u);
    EXPECT_THAT(WatchLine(view.status), HasSubstr("ranks 0/0"));
  }
}

TEST(WatchScreen, APlainLineHasTheSameFigures) {
  EXPECT_EQ(WatchLine(View(2).status),
            "job J  RUNNING  step 1234  loss 2.3457  ranks 2/2  incidents 2  goodput 70.0 %");
}

}  // namespace
}  // namespace kintsugi::runs
