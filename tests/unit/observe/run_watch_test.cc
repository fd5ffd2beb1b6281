#include "tools/observe/run_watch.h"

#include <gtest/gtest.h>

namespace kintsugi::observe {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kBegin = TimePoint(1000s);
const WallTime kNoon = WallTime(std::chrono::seconds(1'790'000'000));

NodePresence Node(const std::string& name, bool here = true) {
  return {.name = name, .host = "host-" + name, .address = "10.0.0." + name, .here = here};
}

struct Watch : ::testing::Test {
  Watch() {
    status = {.job = "j", .run_id = "j/7", .address = "10.0.0.0", .leads = true};
    status.run.emplace();
    status.run->term = {1, 1};
    status.run->hosts = {Node("0"), Node("1"), Node("2")};
  }
  // The events of what is news after so long.
  std::vector<std::string> After(Duration pause) {
    now = now + pause;
    status.run->time.total += pause;
    news = watch.See(status, now, kNoon + std::chrono::duration_cast<std::chrono::seconds>(now - kBegin));
    std::vector<std::string> events;
    for (const OperatorNotice& notice : news) events.push_back(notice.event);
    return events;
  }
  void FailASave(uint64_t failed) {
    status.run->saves.failed = failed;
    status.run->saves.last_failure = {core::SaveSettled{.step = Step(40), .rank = Rank(3), .text = "No space left"},
                                      now};
  }

  RunWatch watch;
  NodeStatus status;
  TimePoint now = kBegin;
  std::vector<OperatorNotice> news;
};

using Events = std::vector<std::string>;

TEST_F(Watch, SaysNothingOfARunThatIsWell) {
  for (int second = 0; second < 200; ++second) EXPECT_EQ(After(1s), Events());
}

TEST_F(Watch, TellsEachFailedSaveOnce) {
  After(1s);
  FailASave(1);
  EXPECT_EQ(After(1s), Events{"save_failed"});
  EXPECT_EQ(news[0].more.at("rank"), 3);
  EXPECT_NE(news[0].says.find("No space left"), std::string::npos);
  EXPECT_EQ(After(1s), Events());
  FailASave(2);
  EXPECT_EQ(After(1s), Events{"save_failed"});
  FailASave(3);
  EXPECT_EQ(watch.End(status.run->saves).size(), 1u) << "the last one, that no status showed";
  EXPECT_EQ(watch.End(status.run->saves).size(), 0u);
}

TEST_F(Watch, TellsANodeThatStaysAwayByNameAndAgainWhenItWasBack) {
  After(1s);
  status.run->hosts[2].here = false;
  EXPECT_EQ(After(1s), Events());
  EXPECT_EQ(After(2s), Events{"node_lost"});
  EXPECT_EQ(news[0].where->host, "host-2");
  EXPECT_NE(news[0].remedy.find("--node-rank 2"), std::string::npos);
  EXPECT_EQ(After(100s), Events());
  status.run->hosts[2].here = true;
  EXPECT_EQ(After(1s), Events());
  status.run->hosts[2].here = false;
  After(1s);
  EXPECT_EQ(After(2s), Events{"node_lost"});
}

TEST_F(Watch, ANodeThatHasNotComeYetIsNotLost) {
  status.run->hosts[2].here = false;
  for (int second = 0; second < 10; ++second) EXPECT_EQ(After(1s), Events());
}

TEST_F(Watch, AfterATakeoverTellsWhoDidNotComeToTheNewLeader) {
  status.run->term = {2, 2};
  status.run->hosts[0].here = status.run->hosts[2].here = false;
  After(1s);
  status.run->hosts[2].here = true;  // it only needed a moment
  EXPECT_EQ(After(3s), Events{"node_lost"});
  EXPECT_EQ(news[0].where->name, "0");
}

TEST_F(Watch, TellsWhenTheLastSpareNodeIsGone) {
  EXPECT_EQ(After(1s), Events()) << "a run that has none misses none";
  status.run->spare_nodes = {3, 4};
  After(1s);
  status.run->spare_nodes = {4};
  EXPECT_EQ(After(1s), Events());
  status.run->spare_nodes.clear();
  EXPECT_EQ(After(1s), Events{"spares_used_up"});
  EXPECT_EQ(After(1s), Events());
}

TEST_F(Watch, TellsWhenNoSpareProcessWaitsForLong) {
  status.run->spares_wanted = 2;
  for (int second = 0; second < 60; second += 10) EXPECT_EQ(After(10s), Events());
  EXPECT_EQ(After(10s), Events{"spares_used_up"});
  EXPECT_EQ(After(100s), Events());
  status.run->spares_waiting = 1;
  After(1s);
  status.run->spares_waiting = 0;
  After(1s);
  EXPECT_EQ(After(59s), Events());
  EXPECT_EQ(After(1s), Events{"spares_used_up"});
}

TEST_F(Watch, TellsOfACertificateThreeTimesAndAnewOfANewOne) {
  status.certificate_ends = kNoon + 25h;
  EXPECT_EQ(After(1s), Events());
  EXPECT_EQ(After(1h), Events{"certificate_ends"});
  EXPECT_EQ(After(22h), Events());
  EXPECT_EQ(After(1h), Events{"certificate_ends"});
  EXPECT_EQ(After(2h), Events{"certificate_ends"});
  EXPECT_EQ(After(2h), Events());
  status.certificate_ends = kNoon + 40h;
  EXPECT_EQ(After(1s), Events{"certificate_ends"});
}

TEST_F(Watch, WhoDoesNotLeadTellsOfItsOwnCertificateAlone) {
  After(1s);
  FailASave(1);
  status.leads = false;
  status.run.reset();
  status.certificate_ends = kNoon;
  EXPECT_EQ(watch.See(status, now, kNoon).size(), 1u);
}

TEST_F(Watch, AnotherStartOfTheRunBeginsAnew) {
  FailASave(2);
  After(10s);
  FailASave(1);
  status.run->time.total = {};
  EXPECT_EQ(After(1s), Events{"save_failed"}) << "one of this start";
}

TEST(Notice, HasWhereItIsFromAndWhatToDo) {
  const NodeStatus own{.job = "j\xFF", .run_id = "j/7", .address = "10.0.0.9", .node = 1};
  const auto json = nlohmann::json::parse(NoticeJson(EndNotice(75, "saved", std::nullopt), own, kNoon, "http://h:1/"));
  EXPECT_EQ(json.at("event"), "run_ended");
  EXPECT_EQ(json.at("exit"), 75);
  EXPECT_EQ(json.at("says"), "saved");
  EXPECT_EQ(json.at("run"), "j/7");
  EXPECT_EQ(json.at("node"), "1");
  EXPECT_EQ(json.at("address"), "10.0.0.9");
  EXPECT_EQ(json.at("time"), "2026-09-21T14:13:20Z");
  EXPECT_EQ(json.at("link"), "http://h:1/");
  EXPECT_NE(json.at("do").get<std::string>().find("--resume auto"), std::string::npos);
  EXPECT_FALSE(json.at("host").get<std::string>().empty());
  const auto again = nlohmann::json::parse(NoticeJson(EndNotice(75, "saved", 2s), own, kNoon, ""));
  EXPECT_EQ(again.at("again_after_s"), 2.0);
  EXPECT_NE(again.at("do").get<std::string>().find("nothing"), std::string::npos);
}

TEST(Notice, OfAnIncidentIsOfItsFirstRanksHost) {
  NodeStatus status{.job = "j", .address = "10.0.0.9"};
  status.run.emplace();
  status.run->hosts = {Node("0"), Node("1")};
  status.run->ranks = {{.rank = Rank(0), .node = 0}, {.rank = Rank(1), .node = 1}};
  const OperatorNotice notice =
      IncidentNotice({{"id", 4}, {"ranks", {1}}, {"cause", "killed"}, {"path", "respawn"}}, status);
  const auto json = nlohmann::json::parse(NoticeJson(notice, status, kNoon, ""));
  EXPECT_EQ(json.at("host"), "host-1");
  EXPECT_EQ(json.at("address"), "10.0.0.1");
  EXPECT_EQ(json.at("id"), 4) << "as the summary has it";
  EXPECT_NE(json.at("says").get<std::string>().find("killed"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::observe
