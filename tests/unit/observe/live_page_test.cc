#include "tools/observe/live_page.h"

#include <gtest/gtest.h>

#include "tools/observe/rank_tiles.h"

namespace kintsugi::observe {
namespace {

RunStatus Training(size_t ranks) {
  RunStatus run;
  run.phase = core::Phase::kRunning;
  run.step = Step(12);
  run.ranks.resize(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    run.ranks[r].rank = Rank(static_cast<int32_t>(r));
    run.ranks[r].life = core::ControllerCore::Life::kReady;
    run.ranks[r].step = 12;
  }
  return run;
}

size_t Count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(LivePage, NothingOfItComesFromOutside) {
  const std::string page = LivePage();
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("script-src 'self'; connect-src 'self'"), std::string::npos);
  EXPECT_EQ(page.find("http:"), std::string::npos);
  EXPECT_EQ(page.find("https:"), std::string::npos);
}

TEST(LivePage, HasNoButtonsUnlessOrdersAreTaken) {
  EXPECT_EQ(LivePage().find("<button"), std::string::npos);
  EXPECT_EQ(LivePage().find("<input"), std::string::npos);
  const std::string page = LivePage(true);
  for (const char* action : {"save", "pause", "continue", "replace"})
    EXPECT_NE(page.find("<button value=\"" + std::string(action) + "\""), std::string::npos) << action;
  EXPECT_NE(page.find("id=\"orders\" class=\"act\" hidden"), std::string::npos) << "not before a token was found right";
}

TEST(LivePage, SaysThatARunIsPaused) {
  NodeStatus status{.job = "j", .leads = true, .run = Training(1)};
  status.run->pause_asked = true;
  EXPECT_NE(LivePageParts(status, nullptr).at("head").find("Pausing, step 12"), std::string::npos);
  status.run->paused_at = Step(13);
  EXPECT_NE(LivePageParts(status, nullptr).at("head").find("Paused after step 13"), std::string::npos);
}

TEST(LivePage, SaysWhyRanksWaited) {
  NodeStatus status{.job = "j", .leads = true, .run = Training(1)};
  status.run->hang =
      HangStatus{{core::BlameKind::kMissing, {Rank(0)}, "rank 0 stands in <module>", {}}, status.run->at};
  EXPECT_NE(LivePageParts(status, nullptr).at("head").find("rank 0 stands in &lt;module&gt;"), std::string::npos);
}

TEST(LivePage, HasAPlaceForEveryPartAndTheScriptKnowsIt) {
  const NodeStatus status{.job = "j", .leads = true, .run = Training(2)};
  const RunRecord record;
  for (const auto& [id, html] : LivePageParts(status, &record)) {
    EXPECT_NE(LivePage().find("<div id=\"" + id + "\"></div>"), std::string::npos) << id;
    EXPECT_NE(LivePageScript().find("\"" + id + "\""), std::string::npos) << id;
  }
}

TEST(LivePage, EscapesWhatARunIsCalled) {
  const NodeStatus status{.job = "<script>alert(1)</script>", .leads = true, .run = Training(1)};
  const RunRecord record;
  for (const auto& [id, html] : LivePageParts(status, &record))
    EXPECT_EQ(html.find("<script"), std::string::npos) << id;
}

TEST(LivePage, SaysWhereAnotherNodeLeads) {
  const NodeStatus status{.job = "j", .node = 2, .hears_leader = true, .term = {4, 1}, .processes = 3};
  const auto parts = LivePageParts(status, nullptr);
  EXPECT_NE(parts.at("head").find("Another node leads"), std::string::npos);
  EXPECT_NE(parts.at("head").find("3 processes"), std::string::npos);
  EXPECT_EQ(parts.at("ranks"), "");
}

TEST(LivePage, OfANodeThatFollowsLinksToTheLeadersWhereThatIsReached) {
  NodeStatus status{.job = "j",
                    .address = "10.0.0.2",
                    .node = 2,
                    .hears_leader = true,
                    .leader = "node 0",
                    .leader_address = "10.0.0.1"};
  const auto head = [&] { return LivePageParts(status, nullptr).at("head"); };
  EXPECT_NE(head().find("node 0 (10.0.0.1) leads, and has no page"), std::string::npos) << head();
  status.leader_page = "http://gpu-0:8080/";
  EXPECT_NE(head().find("<a href=\"http://gpu-0:8080/\">the page of node 0 (10.0.0.1)</a>"), std::string::npos)
      << head();
  status.leader_page = "http://127.0.0.1:8080/";
  EXPECT_EQ(head().find("<a "), std::string::npos) << "it would lead to this host: " << head();
  status.address = "10.0.0.1";
  EXPECT_NE(head().find("<a href=\"http://127.0.0.1:8080/\">"), std::string::npos) << head();
  status.leader_page = "javascript:alert(1)";
  EXPECT_EQ(head().find("javascript"), std::string::npos) << head();
}

TEST(LivePage, NamesHostsAndAddressesOfSeveralNodes) {
  NodeStatus status{.job = "j", .leads = true, .run = Training(2)};
  const RunRecord record;
  EXPECT_EQ(LivePageParts(status, &record).at("nodes"), "") << "one host is no list";
  status.run->nodes = 2;
  status.run->ranks[1].node = 1;
  status.run->hosts = {{.name = "0", .host = "<script>", .address = "10.0.0.6", .here = true},
                       {.name = "1", .host = "gpu-7", .address = "10.0.0.7"},
                       {.name = "2", .host = "gpu-8", .address = "10.0.0.8", .here = true, .spare = true}};
  const auto parts = LivePageParts(status, &record);
  const std::string& nodes = parts.at("nodes");
  EXPECT_NE(nodes.find("<td>gpu-7</td><td>10.0.0.7</td><td><b>away</b>"), std::string::npos) << nodes;
  EXPECT_NE(nodes.find("<td>gpu-8</td><td>10.0.0.8</td><td>a spare"), std::string::npos) << nodes;
  EXPECT_EQ(nodes.find("<script"), std::string::npos);
  EXPECT_NE(parts.at("ranks").find("node 1: gpu-7, 10.0.0.7"), std::string::npos) << parts.at("ranks");
  EXPECT_EQ(parts.at("ranks").find("<script"), std::string::npos);
}

TEST(RankTiles, ShowEveryRankOfASmallWorldWithWhatItDoes) {
  RunStatus run = Training(4);
  run.ranks[1].life = core::ControllerCore::Life::kStarting;
  run.ranks[2].late = std::chrono::milliseconds(40);
  run.ranks[3].respawns = 2;
  const std::string tiles = RankTiles(run);
  EXPECT_EQ(Count(tiles, "<li "), 4u);
  EXPECT_NE(tiles.find("tile starting"), std::string::npos);
  EXPECT_NE(tiles.find("tile ready late"), std::string::npos);
  EXPECT_NE(tiles.find("life 3"), std::string::npos);
}

TEST(RankTiles, ShowOfALargeWorldThoseThatAreNotWell) {
  RunStatus run = Training(5000);
  run.ranks[4711].life = core::ControllerCore::Life::kDead;
  const std::string tiles = RankTiles(run);
  EXPECT_EQ(Count(tiles, "<li "), 1u);
  EXPECT_NE(tiles.find("<b>4711</b>"), std::string::npos);
  for (RankStatus& rank : run.ranks) rank.life = core::ControllerCore::Life::kDead;
  EXPECT_LE(Count(RankTiles(run), "<li "), 1024u);
}

}  // namespace
}  // namespace kintsugi::observe
