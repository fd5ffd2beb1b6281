// Plans executed between real processes, over shared memory and over TCP; and what is left when one is killed.
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/support/linked_ranks.h"
#include "tests/support/memory_store.h"
#include "tests/unit/plan/worlds.h"
#include "tests/unit/reshard/rank_memory.h"

namespace kintsugi::reshard {
namespace {

using namespace std::chrono_literals;

class BetweenProcesses : public testing::TestWithParam<LinkPreference> {};

INSTANTIATE_TEST_SUITE_P(Links, BetweenProcesses, testing::Values(LinkPreference::kSharedMemory, LinkPreference::kTcp),
                         [](const auto& test) {
                           return test.param == LinkPreference::kTcp ? "tcp" : "shared_memory";
                         });

// A child's whole work: executes its part, then looks at every element it asked for.
int ExecuteAndLook(const Metadata& source, const Metadata& target, int32_t rank,
                   std::vector<std::unique_ptr<Link>> links) {
  WorldMemory held(source), wanted(target);
  held.Fill(source);
  std::vector<Link*> pointers;
  for (const auto& link : links) pointers.push_back(link.get());
  const auto plan = MakePlan(source, target, {.rank = rank});
  const Bindings bindings = BindPlain(source, held, target, wanted, rank);
  const auto result = Execute(*plan, source, target, rank, bindings, pointers, {.deadline = In(200s)});
  links.clear();
  if (!result.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", rank, result.status().ToString().c_str());
    return 1;
  }
  const KeyMeta& key = target.keys[0];
  for (auto& [place, memories] : wanted.pieces) {
    if (place.first != rank) continue;
    const auto elements = plan::ElementsOf(key, target.Piece(key, place.second));
    for (size_t e = 0; e < elements.size(); ++e) {
      uint8_t expected[16];
      FillElement(0, elements[e], DTypeSize(key.dtype), expected);
      if (std::memcmp(memories[0]->data() + e * DTypeSize(key.dtype), expected, DTypeSize(key.dtype)) != 0) return 2;
    }
  }
  return result->bytes_sent > 0 || result->bytes_received > 0 ? 0 : 3;
}

TEST_P(BetweenProcesses, ColumnsBecomeRowsAndFlatRangesOtherFlatRanges) {
  const std::pair<Metadata, Metadata> cases[] = {
      {plan::Grid("w", {240, 600}, {1, 4}), plan::Grid("w", {240, 600}, {2, 1}, 2)},
      {plan::Flattened("w", {100, 999}, 4), plan::Flattened("w", {100, 999}, 3)},
      {plan::Flattened("w", {30, 20, 40}, 3), plan::Grid("w", {30, 20, 40}, {1, 2, 2})}};
  for (const auto& [source, target] : cases) {
    LinkedRanks ranks(4, GetParam(),
                      [&](int32_t rank, auto links) { return ExecuteAndLook(source, target, rank, std::move(links)); });
    for (const int code : ranks.Wait()) EXPECT_EQ(code, 0);
  }
}

TEST_P(BetweenProcesses, AKilledRankEndsAllOthersWithAnErrorAndTouchesNothingElse) {
  const Metadata source = plan::Grid("w", {512, 1024}, {4, 1}), target = plan::Grid("w", {512, 1024}, {1, 4});
  LinkedRanks ranks(4, GetParam(), [&](int32_t rank, std::vector<std::unique_ptr<Link>> links) {
    // The last rank dies when all others have told it that they are linked.
    uint8_t byte = 0;
    if (rank == 3) {
      for (const auto& link : links)
        if (!link->Receive(&byte, 1, In(200s)).ok()) return 1;
      std::this_thread::sleep_for(5ms);
      return raise(SIGKILL);
    }
    if (!SendBytes(*links.back(), &byte, 1, In(200s)).ok()) return 1;
    WorldMemory held(source), wanted(target);
    std::vector<Link*> pointers;
    for (const auto& link : links) pointers.push_back(link.get());
    const auto plan = MakePlan(source, target);
    const Bindings bindings = BindPlain(source, held, target, wanted, rank);
    const Status status = Execute(*plan, source, target, rank, bindings, pointers, {.deadline = In(1000s)}).status();
    links.clear();
    for (const auto& [place, memories] : wanted.pieces)
      if (!memories[0]->guards_hold()) return 2;
    return status.code() == StatusCode::kCommFailure ? 7 : 1;
  });
  EXPECT_EQ(ranks.Wait(), (std::vector<int>{7, 7, 7, -SIGKILL}));
}

}  // namespace
}  // namespace kintsugi::reshard
