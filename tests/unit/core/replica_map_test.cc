#include "runtime/core/replica_map.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

using ClaimMap = std::map<Rank, std::map<int, GroupClaim>>;

std::vector<Rank> Ranks(std::vector<int> numbers) {
  std::vector<Rank> ranks;
  for (int n : numbers) ranks.push_back(Rank(n));
  return ranks;
}

void Claim(ClaimMap& claims, int layout, std::vector<int> ranks, int replicas) {
  for (int rank : ranks) claims[Rank(rank)][layout] = {Ranks(ranks), replicas};
}

TEST(ReplicaMap, StridesThroughTheSortedGroup) {
  // n = 8, r = 2: stride 4. n = 8, r = 4: stride 2.
  ClaimMap two, four;
  Claim(two, 0, {0, 1, 2, 3, 4, 5, 6, 7}, 2);
  Claim(four, 0, {0, 1, 2, 3, 4, 5, 6, 7}, 4);
  EXPECT_EQ(ReplicaMap::Build(8, two)->Holders(0, Rank(6)), Ranks({2, 6}));
  EXPECT_EQ(ReplicaMap::Build(8, four)->Holders(0, Rank(5)), Ranks({1, 3, 5, 7}));
  EXPECT_EQ(ReplicaMap::Build(8, two)->shards().size(), 4u);
}

TEST(ReplicaMap, WithAsManyReplicasAsRanksEverybodyHoldsEverything) {
  ClaimMap claims;
  Claim(claims, 0, {0, 1, 2}, 3);
  const auto map = ReplicaMap::Build(3, claims);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->shards().size(), 1u);
  EXPECT_EQ(map->Partners(Rank(1)), Ranks({0, 2}));
}

TEST(ReplicaMap, KnowsNothingOfRanksOutsideOfIt) {
  const ReplicaMap none;
  EXPECT_THROW(none.Partners(Rank(0)), CheckFailure) << "it was not built";
  const auto map = ReplicaMap::Build(2, {});
  EXPECT_THROW(map->LayoutsOf(Rank(2)), CheckFailure);
  EXPECT_THROW(map->Holders(0, Rank(-1)), CheckFailure);
}

TEST(ReplicaMap, GroupsOfTensorParallelRanksStayApart) {
  ClaimMap claims;
  Claim(claims, 0, {0, 2}, 2);
  Claim(claims, 0, {1, 3}, 2);
  const auto map = ReplicaMap::Build(4, claims);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->Holders(0, Rank(3)), Ranks({1, 3}));
  EXPECT_EQ(map->Partners(Rank(0)), Ranks({2}));
}

TEST(ReplicaMap, JoinsThePartnersOfAllLayouts) {
  ClaimMap claims;
  Claim(claims, 0, {0, 1, 2, 3}, 2);  // dense
  Claim(claims, 1, {0, 1}, 2);        // expert
  Claim(claims, 1, {2, 3}, 2);
  const auto map = ReplicaMap::Build(4, claims);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->LayoutsOf(Rank(0)), (std::vector<int>{0, 1}));
  EXPECT_EQ(map->Partners(Rank(0)), Ranks({1, 2}));
  EXPECT_EQ(map->Holders(1, Rank(3)), Ranks({2, 3}));
}

TEST(ReplicaMap, ARankThatClaimsNothingHoldsItsStateAlone) {
  ClaimMap claims;
  Claim(claims, 0, {0, 1}, 2);
  const auto map = ReplicaMap::Build(3, claims);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->Holders(0, Rank(2)), Ranks({2}));
  EXPECT_TRUE(map->Partners(Rank(2)).empty());
}

TEST(ReplicaMap, OfAPartOfTheSeatsKnowsThoseAlone) {
  const Crew crew = Crew(4).Without(Ranks({1}));
  ClaimMap claims;
  Claim(claims, 0, {0, 2, 3}, 3);
  const auto map = ReplicaMap::Build(crew, claims);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->shards().size(), 1u);
  EXPECT_EQ(map->Partners(Rank(2)), Ranks({0, 3}));
  EXPECT_TRUE(map->LayoutsOf(Rank(1)).empty());
  Claim(claims, 0, {0, 1, 2, 3}, 4);
  EXPECT_FALSE(ReplicaMap::Build(crew, claims).ok()) << "rank 1 takes no part";
}

TEST(ClaimWithin, KeepsWhoStaysWhereNoBytesWouldMove) {
  const auto within = [](std::vector<int> ranks, int replicas, std::vector<int> leaving) {
    return ClaimWithin({Ranks(ranks), replicas}, Crew(8).Without(Ranks(leaving)));
  };
  EXPECT_EQ(within({0, 1, 2, 3}, 4, {1}), (GroupClaim{Ranks({0, 2, 3}), 3})) << "each holds everything";
  EXPECT_EQ(within({0, 2, 4, 6}, 4, {2, 3}), (GroupClaim{Ranks({0, 4, 6}), 3}));
  EXPECT_EQ(within({0, 1, 2, 3}, 2, {2, 3}), (GroupClaim{Ranks({0, 1}), 1})) << "a whole replica leaves";
  EXPECT_EQ(within({0, 1, 2, 3}, 2, {0, 1}), (GroupClaim{Ranks({2, 3}), 1}));
  EXPECT_EQ(within({0, 1, 2, 3}, 2, {3}), std::nullopt) << "one shard would have fewer copies than the other";
  EXPECT_EQ(within({0, 1, 2, 3}, 2, {0, 3}), std::nullopt) << "the shards would change their places";
  EXPECT_EQ(within({0, 1, 2, 3}, 1, {3}), std::nullopt) << "what it alone holds would be lost";
  EXPECT_EQ(within({0, 1}, 2, {0, 1}), std::nullopt) << "nobody is left";
}

std::string ErrorOf(int world, const ClaimMap& claims) {
  const auto map = ReplicaMap::Build(world, claims);
  EXPECT_FALSE(map.ok());
  if (map.ok()) return "";
  EXPECT_EQ(map.status().code(), StatusCode::kInvalidArgument);
  return map.status().message();
}

void ExpectNames(const std::string& text, std::vector<std::string> parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(ReplicaMap, NamesTheTwoRanksThatDisagree) {
  ClaimMap claims;
  Claim(claims, 3, {0, 1}, 2);
  claims[Rank(1)][3].replicas = 1;
  ExpectNames(ErrorOf(2, claims), {"layout 3", "rank 0", "rank 1", "2 replicas", "1 replicas"});
  claims[Rank(1)].clear();
  claims[Rank(1)][4] = {Ranks({1}), 1};
  ExpectNames(ErrorOf(2, claims), {"layout 3", "rank 1", "nothing"});
}

TEST(ReplicaMap, RefusesGroupsThatCannotBe) {
  const auto error = [](std::vector<int> ranks, int replicas) {
    ClaimMap claims;
    claims[Rank(0)][0] = {Ranks(ranks), replicas};
    return ErrorOf(4, claims);
  };
  ExpectNames(error({0, 1, 2}, 2), {"rank 0", "divide", "3"});
  ExpectNames(error({0, 1}, 0), {"divide"});
  ExpectNames(error({1, 0}, 1), {"ascending"});
  ExpectNames(error({0, 0}, 1), {"ascending"});
  ExpectNames(error({1, 2}, 1), {"not in it"});
  ExpectNames(error({0, 9}, 1), {"outside the world of 4"});
  ExpectNames(error({-1, 0}, 1), {"outside the world"});
  ExpectNames(error({}, 1), {"not in it"});
}

}  // namespace
}  // namespace kintsugi::core
