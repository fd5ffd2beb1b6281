// FindBlame: who is named, why, and that who waits never is, whatever was said late, in another order or not at all.
#include "runtime/core/blame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLong = 2s;

std::vector<Rank> Ranks(std::initializer_list<int> numbers) {
  std::vector<Rank> ranks;
  for (const int number : numbers) ranks.push_back(Rank(number));
  return ranks;
}

// Ranks that enter collectives of groups one after another; what all members have entered is over.
class Story {
 public:
  explicit Story(int world) {
    for (int r = 0; r < world; ++r) {
      question.ranks.push_back({.rank = Rank(r), .marks = RankMarks{}});
      orders_.push_back(0);
    }
    question.least = 500ms;
  }

  static CollectiveMark Call(CollectiveKind kind, uint64_t size = 10, uint32_t type = 7, int root = -1) {
    CollectiveMark mark;
    mark.kind = kind;
    mark.size = size;
    mark.type = type;
    mark.root = Rank(root);
    mark.entered = kLong;
    return mark;
  }
  GroupMarks& Of(int rank, const std::string& name, const std::vector<Rank>& ranks) {
    auto& groups = question.ranks[static_cast<size_t>(rank)].marks->groups;
    for (GroupMarks& group : groups)
      if (group.name == name && group.ranks == ranks) return group;
    groups.push_back({name, ranks, 0, {}});
    return groups.back();
  }
  void Enter(int rank, const std::string& name, const std::vector<Rank>& ranks, CollectiveMark call) {
    GroupMarks& group = Of(rank, name, ranks);
    call.order = ++orders_[static_cast<size_t>(rank)];
    if (!IsPointToPoint(call.kind)) {
      call.number = ++group.entered;
    } else {
      call.number = group.newest.size() + 1;
      call.waited = true;
    }
    group.newest.push_back(call);
  }
  // All members enter it and leave it.
  void All(const std::string& name, const std::vector<Rank>& ranks, const CollectiveMark& call) {
    for (const Rank rank : ranks) {
      Enter(rank.value(), name, ranks, call);
      Of(rank.value(), name, ranks).newest.back().end = CollectiveEnd::kDone;
    }
  }
  Stand& StandOf(int rank) { return question.ranks[static_cast<size_t>(rank)].marks->stand; }
  Progress& PlaceOf(int rank) { return question.ranks[static_cast<size_t>(rank)].marks->place; }
  Blame Judge() const { return FindBlame(question); }

  BlameQuestion question;

 private:
  std::vector<uint64_t> orders_;
};

const auto kWorld = Ranks({0, 1, 2, 3});
const auto kSum = Story::Call(CollectiveKind::kAllReduce);

Story OneIsMissing(int missing) {
  Story story(4);
  for (int i = 0; i < 5; ++i) story.All("dp", kWorld, kSum);
  for (int r = 0; r < 4; ++r)
    if (r != missing) story.Enter(r, "dp", kWorld, kSum);
  return story;
}

TEST(Blame, ARankThatHasNotComeIsMissing) {
  for (int missing = 0; missing < 4; ++missing) {
    Story story = OneIsMissing(missing);
    story.StandOf(missing).at = "loader.py:88 (fetch)";
    story.StandOf(missing).call = "read";
    const Blame blame = story.Judge();
    EXPECT_EQ(blame.kind, BlameKind::kMissing);
    EXPECT_EQ(blame.ranks, Ranks({missing}));
    EXPECT_NE(blame.text.find("has not come to all_reduce 6 of group dp"), std::string::npos) << blame.text;
    EXPECT_NE(blame.text.find("it stands in loader.py:88 (fetch), read"), std::string::npos) << blame.text;
  }
}

TEST(Blame, NobodyIsNamedWhoHasJustNotComeYet) {
  Story story = OneIsMissing(2);
  for (RankSaid& said : story.question.ranks)
    for (GroupMarks& group : said.marks->groups) group.newest.back().entered = 100ms;
  EXPECT_EQ(story.Judge().kind, BlameKind::kNone);
}

TEST(Blame, ARankThatHasEndedIsMissing) {
  Story story = OneIsMissing(3);
  story.question.ranks[3].ended = true;
  const Blame blame = story.Judge();
  EXPECT_EQ(blame.kind, BlameKind::kMissing);
  EXPECT_EQ(blame.ranks, Ranks({3}));
  EXPECT_NE(blame.text.find("its process has ended"), std::string::npos) << blame.text;
}

TEST(Blame, WhatWasTakenForOverIsSeenWhereSomethingBroke) {
  Story story(4);
  for (int i = 0; i < 3; ++i) story.All("dp", kWorld, kSum);
  for (int r = 0; r < 4; ++r) {
    story.Enter(r, "dp", kWorld, Story::Call(CollectiveKind::kBroadcast, r == 2 ? 2 : 3, r == 2 ? 5 : 7, 0));
    story.Of(r, "dp", kWorld).newest.back().end = CollectiveEnd::kDone;
    if (r != 2) story.Enter(r, "dp", kWorld, Story::Call(CollectiveKind::kAllGather));
  }
  story.question.waits = false;
  EXPECT_EQ(story.Judge().kind, BlameKind::kOtherType);
  EXPECT_EQ(story.Judge().ranks, Ranks({2}));
  // Without all members' word nothing is said of what is over.
  story.question.ranks[1].marks.reset();
  EXPECT_EQ(story.Judge().kind, BlameKind::kNone);
}

// A ring of messages behind each sum; one leaves its own out and is in the next sum, or the gate, with the others.
TEST(Blame, WhoLeftAMessageOutIsNamedAndNotWhoAwaitsIt) {
  for (int i = 0; i < 4; ++i) {
    const int culprit = i % 2 * 2;
    const bool gate = i / 2 == 1;
    Story story(4);
    const auto message = [&](int rank, CollectiveKind kind, int peer, bool open) {
      story.Enter(rank, "dp", kWorld, Story::Call(kind, 5, 7, peer));
      if (!open) story.Of(rank, "dp", kWorld).newest.back().end = CollectiveEnd::kDone;
    };
    for (int step = 0; step < 6; ++step) {
      const bool last = step == 5;
      story.All("dp", kWorld, kSum);
      for (int r = 0; r < 4; ++r) {
        const int right = (r + 1) % 4, left = (r + 3) % 4;
        const bool awaits = last && left == culprit;
        if (r % 2 == 0 && !(last && r == culprit)) message(r, CollectiveKind::kSend, right, false);
        message(r, CollectiveKind::kReceive, left, awaits);
        if (r % 2 == 1 && !awaits) message(r, CollectiveKind::kSend, right, false);
      }
    }
    for (int r = 0; r < 4; ++r) {
      const bool awaits = r == (culprit + 1) % 4;
      if (!gate && !awaits) story.Enter(r, "dp", kWorld, kSum);
      if (gate) story.PlaceOf(r) = {.step = 6, .phase = awaits ? TrainPhase::kBackward : TrainPhase::kGate};
    }
    const Blame blame = story.Judge();
    EXPECT_EQ(blame.kind, BlameKind::kOtherOrder) << blame.text;
    EXPECT_EQ(blame.ranks, Ranks({culprit})) << blame.text;
  }
}

TEST(Blame, AStoppedRankIsCalledSo) {
  for (const char* state : {"T", "D"}) {
    Story story = OneIsMissing(1);
    story.StandOf(1).state = state;
    EXPECT_EQ(story.Judge().kind, BlameKind::kStopped);
    EXPECT_EQ(story.Judge().ranks, Ranks({1}));
  }
  Story story = OneIsMissing(1);
  story.StandOf(1).python_stopped = true;
  EXPECT_EQ(story.Judge().kind, BlameKind::kStopped);
  EXPECT_NE(story.Judge().text.find("nobody gets its lock"), std::string::npos);
}

// Rank 3 sleeps; rank 2 waits for it in tp, and keeps 0 waiting in dp, as 3 keeps 1.
TEST(Blame, WhoWaitsForAnotherIsNotTheOne) {
  Story story(4);
  const auto tp0 = Ranks({0, 1}), tp1 = Ranks({2, 3}), dp0 = Ranks({0, 2}), dp1 = Ranks({1, 3});
  story.All("tp", tp0, kSum);
  story.Enter(0, "dp", dp0, kSum);
  story.Enter(1, "dp", dp1, kSum);
  story.Enter(2, "tp", tp1, kSum);
  const Blame blame = story.Judge();
  EXPECT_EQ(blame.kind, BlameKind::kMissing);
  EXPECT_EQ(blame.ranks, Ranks({3})) << blame.text;
}

TEST(Blame, TheFewDifferFromTheMany) {
  const auto other = [](const CollectiveMark& call, BlameKind kind) {
    Story story(4);
    for (int i = 0; i < 3; ++i) story.All("dp", kWorld, kSum);
    for (int r = 0; r < 4; ++r) story.Enter(r, "dp", kWorld, r == 2 ? call : kSum);
    EXPECT_EQ(story.Judge().kind, kind) << story.Judge().text;
    EXPECT_EQ(story.Judge().ranks, Ranks({2}));
  };
  other(Story::Call(CollectiveKind::kBarrier, 0, 0), BlameKind::kOtherKind);
  other(Story::Call(CollectiveKind::kAllReduce, 11), BlameKind::kOtherSize);
  other(Story::Call(CollectiveKind::kAllReduce, 10, 8), BlameKind::kOtherType);
  other(Story::Call(CollectiveKind::kAllReduce, 10, 7, 1), BlameKind::kOtherRoot);
}

TEST(Blame, WhatDiffersIsSeenAfterItFailed) {
  Story story(4);
  for (int r = 0; r < 4; ++r) {
    story.Enter(r, "dp", kWorld, r == 3 ? Story::Call(CollectiveKind::kAllReduce, 4) : kSum);
    story.Of(r, "dp", kWorld).newest.back().end = CollectiveEnd::kFailed;
  }
  story.question.waits = false;
  EXPECT_EQ(story.Judge().kind, BlameKind::kOtherSize);
  EXPECT_EQ(story.Judge().ranks, Ranks({3}));
}

TEST(Blame, AfterAFailureNobodyIsMissing) {
  Story story = OneIsMissing(1);
  story.question.waits = false;
  EXPECT_EQ(story.Judge().kind, BlameKind::kNone);
}

TEST(Blame, OfTwoTheOneThatLeavesItsHabitIsMeant) {
  Story story(2);
  const auto both = Ranks({0, 1});
  const auto barrier = Story::Call(CollectiveKind::kBarrier, 0, 0);
  for (int i = 0; i < 4; ++i)
    story.All("dp", both, kSum), story.All("dp", both, Story::Call(CollectiveKind::kAllReduce, 3));
  story.All("dp", both, kSum);
  story.Enter(0, "dp", both, Story::Call(CollectiveKind::kAllReduce, 3));
  story.Enter(1, "dp", both, barrier);
  EXPECT_EQ(story.Judge().ranks, Ranks({1}));
  EXPECT_EQ(story.Judge().kind, BlameKind::kOtherKind);
}

TEST(Blame, OfTwoWithoutAPastNobodyIsNamed) {
  Story story(2);
  const auto both = Ranks({0, 1});
  story.Enter(0, "dp", both, kSum);
  story.Enter(1, "dp", both, Story::Call(CollectiveKind::kBarrier, 0, 0));
  EXPECT_EQ(story.Judge().kind, BlameKind::kOtherKind);
  EXPECT_TRUE(story.Judge().ranks.empty());
  EXPECT_NE(story.Judge().text.find("which of them is wrong cannot be told"), std::string::npos);
}

TEST(Blame, GroupsInAnotherOrder) {
  Story story(4);
  for (int i = 0; i < 3; ++i) story.All("a", kWorld, kSum), story.All("b", kWorld, kSum);
  for (int r = 0; r < 4; ++r) story.Enter(r, r == 3 ? "b" : "a", kWorld, kSum);
  const Blame blame = story.Judge();
  EXPECT_EQ(blame.kind, BlameKind::kOtherOrder);
  EXPECT_EQ(blame.ranks, Ranks({3})) << blame.text;
}

TEST(Blame, GroupsInAnotherOrderOfTwoByHabit) {
  Story story(2);
  const auto both = Ranks({0, 1});
  for (int i = 0; i < 3; ++i) story.All("a", both, kSum), story.All("b", both, kSum);
  story.Enter(0, "b", both, kSum);
  story.Enter(1, "a", both, kSum);
  EXPECT_EQ(story.Judge().kind, BlameKind::kOtherOrder);
  EXPECT_EQ(story.Judge().ranks, Ranks({0})) << story.Judge().text;
}

TEST(Blame, WhereAllAreWithinNobodyIsNamed) {
  Story story(4);
  for (int r = 0; r < 4; ++r) story.Enter(r, "dp", kWorld, kSum);
  EXPECT_EQ(story.Judge().kind, BlameKind::kNotLeft);
  EXPECT_TRUE(story.Judge().ranks.empty());
}

TEST(Blame, WhoHasNotComeToTheGate) {
  Story story(4);
  story.All("dp", kWorld, kSum);
  for (int r = 0; r < 4; ++r) story.PlaceOf(r) = {8, r == 2 ? TrainPhase::kBackward : TrainPhase::kGate};
  const Blame blame = story.Judge();
  EXPECT_EQ(blame.ranks, Ranks({2}));
  EXPECT_NE(blame.text.find("has not come to the gate of step 8, where ranks 0, 1, 3 wait"), std::string::npos)
      << blame.text;
}

TEST(Blame, WhoHasEndedIsNamedWithItsLastStep) {
  Story story = OneIsMissing(1);
  story.question.ranks[1].finished = Step(7);
  EXPECT_NE(story.Judge().text.find("its loop has ended after step 7"), std::string::npos);
}

TEST(Blame, AReceiveWaitsForItsSender) {
  Story story(4);
  CollectiveMark receive = Story::Call(CollectiveKind::kReceive, 10, 7, 1);
  story.Enter(2, "pp", kWorld, receive);
  story.Enter(1, "dp", Ranks({0, 1}), kSum);
  story.Of(0, "dp", Ranks({0, 1}));
  EXPECT_EQ(story.Judge().ranks, Ranks({0})) << "rank 1, which is to send, waits for it: " << story.Judge().text;
  EXPECT_EQ(story.Judge().kind, BlameKind::kMissing);
}

TEST(Blame, WhoLeavesACollectiveOutIsInTheNextThing) {
  Story story(4);
  for (int i = 0; i < 3; ++i) story.All("dp", kWorld, kSum);
  for (int r : {0, 1, 3}) story.Enter(r, "dp", kWorld, kSum);
  Story in_message = story, in_gate = story;
  in_message.Enter(2, "dp", kWorld, Story::Call(CollectiveKind::kReceive, 10, 7, 1));
  for (int r = 0; r < 4; ++r) in_gate.PlaceOf(r) = {8, r == 2 ? TrainPhase::kGate : TrainPhase::kBackward};
  for (const Story& left_out : {in_message, in_gate}) {
    EXPECT_EQ(left_out.Judge().kind, BlameKind::kOtherOrder) << left_out.Judge().text;
    EXPECT_EQ(left_out.Judge().ranks, Ranks({2})) << left_out.Judge().text;
  }
}

TEST(Blame, WhoHasACollectiveMoreIsInItAlone) {
  Story story(4);
  story.All("dp", kWorld, kSum);
  story.Enter(1, "dp", kWorld, Story::Call(CollectiveKind::kBarrier, 0, 0));
  for (int r = 0; r < 4; ++r) story.PlaceOf(r) = {8, r == 1 ? TrainPhase::kBackward : TrainPhase::kGate};
  EXPECT_EQ(story.Judge().ranks, Ranks({1})) << story.Judge().text;
}

TEST(Blame, ASilentRankIsNamedAndOneWithoutAnAnswerIsNot) {
  Story story = OneIsMissing(2);
  story.question.ranks[2].marks.reset();
  EXPECT_TRUE(story.Judge().ranks.empty());
  story.question.ranks[2].silent = true;
  EXPECT_EQ(story.Judge().kind, BlameKind::kNoAnswer);
  EXPECT_EQ(story.Judge().ranks, Ranks({2}));
}

TEST(Blame, StacksOfEqualsAreFolded) {
  Story story = OneIsMissing(2);
  for (int r = 0; r < 4; ++r)
    story.StandOf(r).stack = {r == 2 ? "loader.py:88 (fetch)" : "train.py:9 (step)", "train.py:40 (main)"};
  const Blame blame = story.Judge();
  ASSERT_EQ(blame.stacks.size(), 2u);
  EXPECT_EQ(blame.stacks[0].ranks, Ranks({2}));
  EXPECT_EQ(blame.stacks[1].ranks, Ranks({0, 1, 3}));
  EXPECT_EQ(blame.stacks[0].text, "loader.py:88 (fetch) < train.py:40 (main)");
}

// Worlds of 2 x 2 to 4 x 4 ranks in tp and dp groups that do the same step again and again, until one of them does
// something else: what is said of it comes in any order, some of it not at all, some from before the others stood.
TEST(Blame, WhateverIsLostLateOrReorderedNoInnocentIsNamed) {
  int named = 0, runs = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    const int tp = 2 + below(3), dp = 2 + below(3), world = tp * dp;
    const int culprit = below(world), at = below(4);
    Story story(world);
    struct Meeting {
      std::string name;
      std::vector<Rank> ranks;
    };
    const auto meeting = [&](int rank, int place) {
      Meeting m{place % 2 ? "dp" : "tp", {}};
      for (int r = 0; r < world; ++r)
        if (place % 2 ? r % tp == rank % tp : r / tp == rank / tp) m.ranks.push_back(Rank(r));
      return m;
    };
    const auto call = [](int place) {
      return Story::Call(CollectiveKind::kAllReduce, 10 + static_cast<uint64_t>(place));
    };
    const int steps = 2 + below(3);
    // Everybody walks on as far as it can; collectives complete when all members are in them.
    std::vector<int> position(static_cast<size_t>(world), 0);
    std::vector<bool> within(static_cast<size_t>(world), false);
    const int stops = steps * 4 + at;
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < world; ++r) {
        const int here = position[static_cast<size_t>(r)];
        if (within[static_cast<size_t>(r)] || (r == culprit && here == stops)) continue;
        const Meeting m = meeting(r, here % 4);
        story.Enter(r, m.name, m.ranks, call(here % 4));
        within[static_cast<size_t>(r)] = moved = true;
      }
      for (int r = 0; r < world; ++r) {
        const int here = position[static_cast<size_t>(r)];
        const Meeting m = meeting(r, here % 4);
        if (!std::all_of(m.ranks.begin(), m.ranks.end(), [&](Rank member) {
              return position[static_cast<size_t>(member.value())] == here &&
                     within[static_cast<size_t>(member.value())];
            }))
          continue;
        for (const Rank member : m.ranks) {
          const auto i = static_cast<size_t>(member.value());
          story.Of(member.value(), m.name, m.ranks).newest.back().end = CollectiveEnd::kDone;
          within[i] = false;
          ++position[i];
        }
        moved = true;
      }
      if (*std::max_element(position.begin(), position.end()) > stops + 100) break;
    }
    for (int r = 0; r < world; ++r) {
      RankSaid& said = story.question.ranks[static_cast<size_t>(r)];
      if (below(4) == 0) {  // lost on its way
        said.marks.reset();
        said.silent = r == culprit && below(2) == 0;
      } else if (r != culprit && below(4) == 0) {  // taken before it came to where it waits for long
        for (GroupMarks& group : said.marks->groups)
          for (CollectiveMark& mark : group.newest)
            if (mark.end == CollectiveEnd::kOpen) mark.entered = 10ms;
      }
      if (said.marks) std::shuffle(said.marks->groups.begin(), said.marks->groups.end(), random);
      if (said.marks)
        for (GroupMarks& group : said.marks->groups) std::shuffle(group.newest.begin(), group.newest.end(), random);
    }
    std::shuffle(story.question.ranks.begin(), story.question.ranks.end(), random);
    const Blame blame = story.Judge();
    ++runs;
    for (const Rank rank : blame.ranks) {
      EXPECT_EQ(rank, Rank(culprit)) << "seed " << seed << ": " << blame.text;
      ++named;
    }
  }
  EXPECT_GT(named, runs / 3) << "the culprit is found in few";
}

}  // namespace
}  // namespace kintsugi::core
