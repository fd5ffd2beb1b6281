// What ranks tell each other over links: the tree, folds in order, errors that are everybody's, links that break.
#include "replica/live/agree.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tests/unit/live/live_ranks.h"

namespace kintsugi::live {
namespace {

using namespace std::chrono_literals;

Word TextOf(const std::string& text) { return Word(text.begin(), text.end()); }

Result<Word> Join(std::vector<Word> words) {
  Word all;
  for (const Word& word : words) all.insert(all.end(), word.begin(), word.end());
  return all;
}

TEST(AgreeTree, HasEachRankOnceBelowItsParent) {
  for (size_t count = 1; count <= 130; ++count) {
    std::map<size_t, size_t> parents;
    for (size_t place = 0; place < count; ++place)
      for (const size_t child : ChildrenOf(place, count)) {
        EXPECT_TRUE(parents.emplace(child, place).second) << child;
        EXPECT_EQ(ParentOf(child), place);
      }
    EXPECT_EQ(parents.size(), count - 1);
    EXPECT_LE(ChildrenOf(0, count).size(), 8u);
  }
}

TEST(Agree, FoldsWordsInTheOrderOfRanksAndTellsAll) {
  for (const int32_t count : {1, 2, 3, 6, 9}) {
    LiveRanks ranks(count);
    std::string expected;
    for (int32_t rank = 0; rank < count; ++rank) expected += static_cast<char>('a' + rank);
    for (int round = 0; round < 2; ++round)  // the links stay
      ranks.Each([&](int32_t rank, LinkMesh& mesh) {
        const auto agreed =
            Agree(mesh, "letters", TextOf(expected.substr(static_cast<size_t>(rank), 1)), Join, In(60s), nullptr);
        ASSERT_TRUE(agreed.ok()) << agreed.status().ToString();
        ASSERT_TRUE(agreed->ok());
        EXPECT_EQ(**agreed, TextOf(expected));
      });
  }
}

TEST(Agree, TheErrorOfTheLowestRankIsEverybodysAndTheLinksStay) {
  LiveRanks ranks(7);
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    const Result<Word> own = rank == 5 || rank == 3
                                 ? Result<Word>(Status(StatusCode::kDataLoss, "of rank " + std::to_string(rank)))
                                 : Result<Word>(Word());
    const auto agreed = Agree(mesh, "errors", own, Join, In(60s), nullptr);
    ASSERT_TRUE(agreed.ok()) << agreed.status().ToString();
    EXPECT_EQ(agreed->status().code(), StatusCode::kDataLoss);
    EXPECT_EQ(agreed->status().message(), "of rank 3");
    EXPECT_FALSE(mesh.aborted());
  });
}

TEST(Agree, ARankThatDoesNotComeIsNamedByTheLimit) {
  LiveRanks ranks(2);
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    if (rank == 1) return;
    const auto agreed = Agree(mesh, "who is there", Word(), Join, In(100ms), nullptr);
    ASSERT_FALSE(agreed.ok());
    EXPECT_EQ(agreed.status().code(), StatusCode::kDeadlineExceeded) << agreed.status().ToString();
    EXPECT_NE(agreed.status().message().find("rank 1"), std::string::npos) << agreed.status().ToString();
  });
}

}  // namespace
}  // namespace kintsugi::live
