// What hosts that met found out about each other, judged.
#include "tools/doctor/party.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kintsugi::doctor {
namespace {

Party Three() {
  Party party{.nodes = 3, .waited_s = 2};
  for (int node = 0; node < 3; ++node)
    party.guests.push_back({.node = node,
                            .host = "host" + std::to_string(node),
                            .address = "10.0.0." + std::to_string(node + 1),
                            .version = "1.0",
                            .save_dir = "/saves"});
  party.rates = {{0, 1, 2.0}, {1, 2, 2.5}, {2, 0, 3.0}};
  return party;
}

std::vector<Finding> Of(const Party& party, const std::string& check) {
  std::vector<Finding> found = JudgeParty(party);
  std::erase_if(found, [&](const Finding& one) { return one.check != check; });
  return found;
}

TEST(Party, AllIsWellWhereEachReachesEach) {
  EXPECT_EQ(WorstOf(JudgeParty(Three())), Severity::kOk);
  EXPECT_EQ(RoadTable(Three()), "");
}

TEST(Party, WhoDidNotComeIsNamed) {
  Party party = Three();
  party.guests.erase(party.guests.begin() + 1);
  const auto found = Of(party, "nodes");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::kError);
  EXPECT_EQ(found[0].found, "node 1 did not come within 2.00 s");
}

TEST(Party, ARoadThatIsClosedBothWaysIsOneFindingAndOneWayNamesTheWay) {
  Party party = Three();
  party.closed = {{1, 2, "10.0.0.3:4000: no answer"},
                  {2, 1, "10.0.0.2:4000: no answer"},
                  {2, 0, "10.0.0.1:4000: Connection refused"}};
  const auto found = Of(party, "roads");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].found,
            "node 1 (host1, 10.0.0.2) and node 2 (host2, 10.0.0.3) cannot reach each other: 10.0.0.3:4000: no answer");
  EXPECT_NE(found[0].todo.find("firewall"), std::string::npos);
  EXPECT_EQ(found[1].found,
            "node 2 (host2, 10.0.0.3) cannot reach node 0 (host0, 10.0.0.1): 10.0.0.1:4000: Connection refused; the "
            "other way it is open");
  EXPECT_EQ(RoadTable(party),
            "reached         to 0    to 1    to 2\n"
            "from 0             .     yes     yes\n"
            "from 1           yes       .       -\n"
            "from 2             -       -       .\n");
}

TEST(Party, AClockIsToldOnlyWhereTheRoundTripCannotExplainIt) {
  Party party = Three();
  party.guests[1].clock_off_s = -5, party.guests[1].clock_doubt_s = 4.5;
  EXPECT_EQ(Of(party, "clocks")[0].severity, Severity::kOk);
  party.guests[1].clock_doubt_s = 0.1;
  const auto found = Of(party, "clocks");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::kWarning);
  EXPECT_EQ(found[0].found, "the clock of node 1 (host1, 10.0.0.2) is 5.00 s behind node 0's");
}

TEST(Party, WhatMustBeAlikeIsComparedWithNode0) {
  Party party = Three();
  party.guests[2].version = "1.1";
  party.guests[1].save_dir = "/other";
  EXPECT_EQ(Of(party, "versions")[0].found, "node 2 (host2, 10.0.0.3) has '1.1', node 0 (host0, 10.0.0.1) '1.0'");
  EXPECT_EQ(Of(party, "save folder")[0].severity, Severity::kError);
}

TEST(Party, CertificatesAreAllsOrNobodys) {
  Party party = Three();
  ASSERT_EQ(Of(party, "TLS").size(), 1u);
  EXPECT_EQ(Of(party, "TLS")[0].severity, Severity::kOk);
  EXPECT_NE(Of(party, "TLS")[0].found.find("no node has certificates"), std::string::npos);
  for (Guest& guest : party.guests) guest.ca = "ca";
  EXPECT_EQ(Of(party, "TLS")[0].found, "all have certificates, and the same CA");
  party.guests[0].ca = "";
  party.guests[2].ca = "other";
  ASSERT_EQ(Of(party, "TLS").size(), 2u);
  EXPECT_EQ(Of(party, "TLS")[0].severity, Severity::kError);
  EXPECT_EQ(
      Of(party, "TLS")[0].found,
      "node 0 (host0, 10.0.0.1) was given no certificates, node 1 (host1, 10.0.0.2) was: a run's launchers refuse "
      "each other");
  EXPECT_EQ(Of(party, "TLS")[1].severity, Severity::kWarning);
}

TEST(Party, AFolderThatIsNotSharedNamesWhoMissesWhom) {
  Party party = Three();
  party.guests[2].unseen = {0, 1};
  const auto found = Of(party, "shared folder");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].found, "node 2 (host2, 10.0.0.3) does not see what node 0, 1 wrote to '/saves'");
}

TEST(Party, AWayThatIsMuchSlowerThanTheOthersIsAWarning) {
  Party party = Three();
  party.rates[0].gib_s = 0.5;
  const auto found = Of(party, "rates");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].found,
            "node 0 (host0, 10.0.0.1) to node 1 (host1, 10.0.0.2): 0.50 GiB/s, the median is 2.50 GiB/s");
}

}  // namespace
}  // namespace kintsugi::doctor
