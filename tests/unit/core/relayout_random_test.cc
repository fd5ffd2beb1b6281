// State that is cut anew again and again, by word and after losses, with processes that die at any moment: a controller and a model of
// ranks, drawn from a seed. What must hold:
//   whenever the run goes on, all hold what one layout gives them, and together every piece;
//   it ends without a piece only where that piece's last holder died.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

constexpr int kSeats = 4;
constexpr int kPieces = 12;

// What one rank holds: pieces, as they are cut among these ranks.
struct Cut {
  std::vector<Rank> crew;
  std::set<int> pieces;
  bool operator==(const Cut&) const = default;
};

// Copies of each piece among so many ranks: one more for each bit that the seed has set.
struct Rule {
  uint32_t bits = 0;
  int CopiesAmong(size_t size) const { return size % 2 == 0 && (bits >> size & 1) ? 2 : 1; }
  GroupClaim Claim(const std::vector<Rank>& crew) const { return {crew, CopiesAmong(crew.size())}; }
  Cut Of(Rank rank, const std::vector<Rank>& crew) const {
    const int shards = static_cast<int>(crew.size()) / CopiesAmong(crew.size());
    const auto number = static_cast<int>(std::find(crew.begin(), crew.end(), rank) - crew.begin());
    Cut cut{crew, {}};
    for (int piece = 0; piece < kPieces; ++piece)
      if (piece * shards / kPieces == number % shards) cut.pieces.insert(piece);
    return cut;
  }
};

struct Process {
  bool alive = false;
  Incarnation incarnation;
  Cut registered;
  bool whole = false;  // its registered pieces are there
  bool given = false;  // ... since this attempt's REPAIR: they count once they were compared
  struct Next {
    Generation generation;
    Cut cut;
    bool whole = false;
  };
  std::optional<Next> next;
  std::deque<Send> orders;

  // As the agent's NextState.
  void Settle(Generation generation, const PhaseOrder& order) {
    if (!next) return;
    if (order.registered_in == next->generation)
      Keep();
    else if (generation != next->generation)
      next.reset();
  }
  void Keep() {
    if (next) registered = next->cut, whole = next->whole, next.reset();
  }
};

class Model {
 public:
  explicit Model(uint64_t seed)
      : random_(seed), rule_{static_cast<uint32_t>(random_())}, core_(PolicyOf(random_), {1, 1}) {}

  void Play() {
    Absorb(core_.Start(now_));
    int orders_left = 4, kills_left = static_cast<int>(random_() % 5);
    const uint64_t often = 1 + random_() % 12;  // so that they strike early in a change, or late
    for (int round = 0; round < 4000 && !ended_ && !Failed(); ++round) {
      if (core_.phase() == Phase::kRunning && Quiet() && Chance(50) && orders_left > 0) {
        CheckTraining();
        --orders_left;
        Feed(OperatorScale{static_cast<int>(random_() % 4) + 1});
      }
      if (kills_left > 0 && core_.incidents() > 0 && Chance(core_.phase() == Phase::kRunning ? 1 : often)) {
        const auto rank = static_cast<int>(random_() % kSeats);
        if (processes_[rank].alive) --kills_left, Kill(rank);
      }
      if (!DeliverOne()) now_ = now_ + 20ms, Beat(), Feed(Tick{});
    }
    if (Failed()) return;
    if (ended_) return CheckEnd();
    EXPECT_EQ(core_.phase(), Phase::kRunning) << "it does not come to rest";
    CheckTraining();
  }

  uint64_t changes = 0, kills_in_changes = 0, ends = 0;

 private:
  static Policy PolicyOf(std::mt19937_64& random) {
    Policy policy;
    policy.world_size = kSeats;
    policy.silence = 1s;
    policy.step_timeout = 4s;
    policy.join_timeout = 10s;
    policy.max_respawns = static_cast<int>(random() % 3);
    policy.hang_factor = 0;  // nobody trains here
    return policy;
  }
  static bool Failed() { return ::testing::Test::HasFailure(); }
  bool Chance(uint64_t percent) { return random_() % 100 < percent; }
  bool Quiet() const {
    return std::all_of(std::begin(processes_), std::end(processes_), [](const Process& p) { return p.orders.empty(); });
  }
  const std::vector<Rank>& Crew() const { return core_.crew().ranks(); }

  void Feed(const ControllerEvent& event) { Absorb(core_.Step(event, now_)); }
  void Say(int rank, AgentMessage message) {
    Feed(FromAgent{{core_.term(), core_.generation(), Rank(rank), processes_[rank].incarnation}, std::move(message)});
  }
  void Beat() {
    for (int rank = 0; rank < kSeats; ++rank)
      if (processes_[rank].alive) Say(rank, core::Beat{++beats_, Progress{1, {}, {}}});
  }

  void Absorb(std::vector<ControllerAction> actions) {
    for (ControllerAction& action : actions) {
      if (auto* send = std::get_if<Send>(&action)) {
        const Process& process = processes_[send->header.rank.value()];
        if (process.alive && process.incarnation == send->header.incarnation) Take(*send);
      } else if (const auto* spawn = std::get_if<SpawnProcess>(&action)) {
        spawned_.push_back(*spawn);
      } else if (const auto* kill = std::get_if<KillProcess>(&action)) {
        killed_.push_back(*kill);
      } else if (std::holds_alternative<CrewChanged>(action)) {
        ++changes;
      } else if (const auto* ended = std::get_if<RunEnded>(&action)) {
        ended_ = *ended;
      }
    }
  }
  void Take(const Send& send) {
    const auto* order = std::get_if<PhaseOrder>(&send.message);
    if (order) counts_ = std::max(counts_, order->registered_in);
    if (order && order->relayout) cutting_ = send.header.generation;
    if (std::holds_alternative<ResumeOrder>(send.message) && cutting_ == send.header.generation) counts_ = cutting_;
    processes_[send.header.rank.value()].orders.push_back(send);
  }

  void Kill(int rank) {
    Process& process = processes_[rank];
    const Phase phase = core_.phase();
    if (phase != Phase::kRunning) ++kills_in_changes;
    NoteLoss(rank);
    const Incarnation incarnation = process.incarnation;
    process = {};
    Feed(ProcessExited{Rank(rank), incarnation, "killed by SIGKILL", std::nullopt});
  }

  // Which pieces are with nobody else, by the registration that counts.
  void NoteLoss(int dying) {
    std::set<int> left;
    for (int rank = 0; rank < kSeats; ++rank) {
      const Process& process = processes_[rank];
      if (rank == dying || !process.alive) continue;
      const bool next_counts = process.next && process.next->generation == counts_;
      const Cut& cut = next_counts ? process.next->cut : process.registered;
      if (cut.crew != Crew()) continue;  // it has left, or comes
      if (next_counts ? process.next->whole : process.whole) left.insert(cut.pieces.begin(), cut.pieces.end());
    }
    if (left.size() < kPieces) lost_ = true;
  }

  bool DeliverOne() {
    if (!killed_.empty()) {
      const KillProcess kill = killed_.front();
      killed_.pop_front();
      Process& process = processes_[kill.rank.value()];
      if (process.alive && process.incarnation == kill.incarnation) NoteLoss(kill.rank.value()), process = {};
      Feed(ProcessExited{kill.rank, kill.incarnation, "killed by SIGKILL", std::nullopt});
      return true;
    }
    std::vector<int> ready;
    for (int rank = 0; rank < kSeats; ++rank)
      if (CanAnswer(rank)) ready.push_back(rank);
    const size_t choices = ready.size() + (spawned_.empty() ? 0 : 1);
    if (choices == 0) return false;
    const size_t choice = random_() % choices;
    choice < ready.size() ? Answer(ready[choice]) : Begin();
    return true;
  }

  void Begin() {
    const SpawnProcess spawn = spawned_.front();
    spawned_.pop_front();
    const int rank = spawn.rank.value();
    processes_[rank] = {};
    processes_[rank].alive = true;
    processes_[rank].incarnation = spawn.incarnation;
    Say(rank, JoinRequest{.pid = 1, .host = "h"});
  }

  // Pieces move once all that take part in that are there.
  bool CanAnswer(int rank) const {
    const Process& process = processes_[rank];
    if (!process.alive || process.orders.empty()) return false;
    const Send& send = process.orders.front();
    const auto* order = std::get_if<PhaseOrder>(&send.message);
    if (!order || order->phase != Phase::kRepair || send.header.generation != core_.generation()) return true;
    if (!order->relayout) return true;
    std::set<int> members;
    for (Rank holder : order->holders) members.insert(holder.value());
    for (Rank member : CrewOf(*order)) members.insert(member.value());
    return std::all_of(members.begin(), members.end(), [&](int other) {
      return processes_[other].alive &&
             (moved_ == send.header.generation || IsInRepair(processes_[other], send.header.generation));
    });
  }
  static bool IsInRepair(const Process& process, Generation generation) {
    if (process.orders.empty() || process.orders.front().header.generation != generation) return false;
    const auto* order = std::get_if<PhaseOrder>(&process.orders.front().message);
    return order && order->phase == Phase::kRepair;
  }
  static std::vector<Rank> CrewOf(const PhaseOrder& order) {
    return core::Crew::Of(kSeats, order.crew).value().ranks();
  }

  void Answer(int rank) {
    Process& process = processes_[rank];
    const Send send = std::move(process.orders.front());
    process.orders.pop_front();
    if (const auto* reply = std::get_if<JoinReply>(&send.message)) {
      if (!reply->accepted) return;
      const std::vector<Rank> crew = core::Crew::Of(kSeats, reply->crew).value().ranks();
      process.registered = rule_.Of(Rank(rank), crew);
      process.whole = core_.incidents() == 0 && !reply->replacement;
      Ready ready;
      ready.layouts[0] = rule_.Claim(crew);
      ready.offer = {{Rank(rank)}, {1, 2, 3, 4}, "", true};
      return Say(rank, ready);
    }
    if (std::holds_alternative<EndOrder>(send.message)) {
      const Incarnation incarnation = process.incarnation;
      process = {};
      return Feed(ProcessExited{Rank(rank), incarnation, "exited with code 0", std::nullopt, false, true, 0});
    }
    if (send.header.generation != core_.generation()) return;
    if (std::holds_alternative<LockOrder>(send.message))
      process.given = false, Say(rank, LockReply{GateState::kCommitted, Step(1), process.whole});
    if (std::holds_alternative<StopOrder>(send.message))
      Say(rank, Parked{GateState::kCommitted, Step(1), process.whole});
    if (std::holds_alternative<ResumeOrder>(send.message)) process.Keep(), Say(rank, Resumed{});
    if (std::holds_alternative<PauseAt>(send.message)) Say(rank, PauseAck{Step(1)}), Say(rank, SavePoint{Step(1)});
    if (const auto* order = std::get_if<PhaseOrder>(&send.message)) CarryOut(rank, *order, send.header.generation);
  }

  void CarryOut(int rank, const PhaseOrder& order, Generation generation) {
    Process& process = processes_[rank];
    process.Settle(generation, order);
    PhaseDone done{.phase = order.phase};
    if (order.phase == Phase::kRebuild && order.relayout) {
      const std::vector<Rank> crew = CrewOf(order);
      if (process.whole || process.registered.crew != crew) {
        process.next = {generation, rule_.Of(Rank(rank), crew), false};
        done.next = {Registered{{}, {{0, rule_.Claim(crew)}}}};
      }
    } else if (order.phase == Phase::kRepair && order.relayout) {
      if (moved_ != generation) Move(order, generation);
    } else if (order.phase == Phase::kRepair) {
      Repair(rank, order);
    } else if (order.phase == Phase::kVerify) {
      const Cut& cut = process.next ? process.next->cut : process.registered;
      EXPECT_TRUE(process.next ? process.next->whole : process.whole || process.given)
          << "rank " << rank << " is compared, and holds nothing";
      done.digests[0] = static_cast<uint64_t>(*cut.pieces.begin()) * 100 + cut.pieces.size();
    }
    if (order.phase == Phase::kRollback && std::exchange(process.given, false)) process.whole = true;
    Say(rank, done);
  }

  void Move(const PhaseOrder& order, Generation generation) {
    moved_ = generation;
    std::set<int> held;
    for (Rank holder : order.holders) {
      const Process& source = processes_[holder.value()];
      ASSERT_TRUE(source.whole) << "rank " << holder.ToString() << " gives away what it does not hold";
      held.insert(source.registered.pieces.begin(), source.registered.pieces.end());
    }
    EXPECT_EQ(held.size(), static_cast<size_t>(kPieces)) << "a piece is with none of its holders";
    for (Rank rank : CrewOf(order)) {
      Process& target = processes_[rank.value()];
      (target.next ? target.next->whole : target.given) = true;
    }
  }

  void Repair(int rank, const PhaseOrder& order) {
    for (const RepairMove& move : order.moves) {
      if (move.destination != Rank(rank)) continue;
      for (Rank source : move.sources) {
        const Process& from = processes_[source.value()];
        if (!from.alive) return;  // seen soon
        EXPECT_TRUE(from.whole && from.registered == Cut({Crew(), processes_[rank].registered.pieces}))
            << "rank " << rank << " is given what rank " << source.ToString() << " holds in another layout";
      }
      processes_[rank].given = true;
    }
  }

  void CheckTraining() const {
    std::set<int> held;
    for (Rank rank : Crew()) {
      const Process& process = processes_[rank.value()];
      if (!process.alive) return;  // seen soon
      EXPECT_TRUE(process.whole) << "rank " << rank.ToString() << " trains without its state";
      EXPECT_EQ(process.registered, rule_.Of(rank, Crew()))
          << "rank " << rank.ToString() << " trains in another layout";
      EXPECT_FALSE(process.next) << "rank " << rank.ToString() << " trains with two layouts";
      held.insert(process.registered.pieces.begin(), process.registered.pieces.end());
    }
    EXPECT_EQ(held.size(), static_cast<size_t>(kPieces)) << "a piece is with nobody";
  }

  void CheckEnd() {
    ++ends;
    EXPECT_NE(ended_->exit_code, 0);
    const bool no_process = ended_->text.find("no respawn left") != std::string::npos;
    EXPECT_TRUE(lost_ || no_process) << "the run ended, and every piece was there: " << ended_->text;
  }

  std::mt19937_64 random_;
  const Rule rule_;
  ControllerCore core_;
  TimePoint now_ = TimePoint(1000s);
  Process processes_[kSeats];
  std::deque<SpawnProcess> spawned_;
  std::deque<KillProcess> killed_;
  Generation moved_;   // the newest in which pieces moved
  Generation counts_;  // the newest whose registration counts
  Generation cutting_;
  bool lost_ = false;  // a piece's last holder died
  uint64_t beats_ = 0;
  std::optional<RunEnded> ended_;
};

TEST(RelayoutRandom, EveryPieceIsWithItsOldOrItsNewOwnerAndNobodyTrainsInAMixedLayout) {
  uint64_t changes = 0, kills = 0, ends = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(seed);
    model.Play();
    if (HasFailure()) return;
    changes += model.changes, kills += model.kills_in_changes, ends += model.ends;
  }
  EXPECT_GT(changes, 2000u) << "it plays what it is about";
  EXPECT_GT(kills, 1000u);
  EXPECT_GT(ends, 10u);
}

}  // namespace
}  // namespace kintsugi::core
