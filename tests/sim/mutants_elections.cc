// Mutants of who decides (votes, quorums, terms, takeovers), of comparisons between steps, and of spares.
#include <algorithm>

#include "tests/sim/mutants.h"

namespace kintsugi::sim {
namespace {

using Extra = std::vector<ControllerEvent>;
using Bend = std::function<void(const ControllerCore&, ControllerEvent*, Extra*)>;

class BentIn : public Hook {
 public:
  explicit BentIn(Bend bend) : bend_(std::move(bend)) {}
  void BeforeController(const ControllerCore& core, ControllerEvent* event, Extra* after) override {
    bend_(core, event, after);
  }

 private:
  Bend bend_;
};

std::function<std::unique_ptr<Hook>()> In(Bend bend) {
  return [bend] { return std::make_unique<BentIn>(bend); };
}

template <typename T>
std::function<std::unique_ptr<Hook>()> Of() {
  return [] { return std::make_unique<T>(); };
}

// It forgets to whom it has promised itself.
struct VotesTwice : Hook {
  void OnVote(int, int, uint64_t, bool* granted) override { *granted = true; }
};

// One rank more than the voter has is counted as ended.
struct OneRankMore : Hook {
  void OnLocalRanks(int, ElectionCore::LocalRanks* ranks) override {
    for (int rank = 0;; ++rank) {
      const auto has = [rank](const std::vector<Rank>& list) {
        return std::find(list.begin(), list.end(), Rank(rank)) != list.end();
      };
      if (has(ranks->live) || has(ranks->ended)) continue;
      ranks->ended.push_back(Rank(rank));
      return;
    }
  }
};

// Both halves of an even split lead, or any part that has waited long enough.
struct EverybodyLeads : Hook {
  void OnElection(int, ElectionCore::Decision* decision) override {
    if (decision->lead) decision->lead->majority = true;
  }
};

struct ObeysAnyTerm : Hook {
  void BeforeAgent(Rank, const AgentCore& core, AgentEvent* event) override {
    if (auto* message = std::get_if<FromController>(event))
      message->header.term = std::max(message->header.term, core.term());
  }
};

// Orders go out while a controller that takes over still listens.
struct OrdersWhileListening : Hook {
  void AfterController(const ControllerCore& core, const ControllerEvent& cause,
                       std::vector<ControllerAction>* actions) override {
    const auto* from = std::get_if<FromAgent>(&cause);
    const auto* join = from ? std::get_if<JoinRequest>(&from->message) : nullptr;
    if (join && core.taking_over() && join->standing == core::Standing::kLocked)
      actions->push_back(
          Send{{core.term(), core.generation(), from->header.rank, from->header.incarnation}, ResumeOrder{}});
  }
};

// What ranks say of their groups is not heard by a controller that takes over: each is alone with its state.
void GroupsUnheard(const ControllerCore& core, ControllerEvent* event, Extra*) {
  auto* from = std::get_if<FromAgent>(event);
  auto* ready = from ? std::get_if<Ready>(&from->message) : nullptr;
  if (!ready || !core.taking_over()) return;
  for (auto& [layout, claim] : ready->layouts) claim = {{from->header.rank}, 1};
}

// Copies that differ are taken for equal, or the answer of a comparison is whatever the first rank said.
void MismatchIgnored(const ControllerCore&, ControllerEvent* event, Extra*) {
  auto* from = std::get_if<FromAgent>(event);
  auto* done = from ? std::get_if<PhaseDone>(&from->message) : nullptr;
  if (done && done->phase == Phase::kVerify)
    for (auto& [layout, digest] : done->digests) digest = 1;
}

// A comparison that is due is not made.
struct ComparisonSkipped : Hook {
  void AfterController(const ControllerCore& core, const ControllerEvent&,
                       std::vector<ControllerAction>* actions) override {
    if (core.phase() != Phase::kRunning) return;
    for (ControllerAction& action : *actions) {
      auto* send = std::get_if<Send>(&action);
      const auto* order = send ? std::get_if<PhaseOrder>(&send->message) : nullptr;
      if (order && order->phase == Phase::kVerify) send->message = ContinueOrder{};
    }
  }
};

// Nobody hears of a move but the node that gets the ranks: the one that had them counts for them still.
struct MovesUnheard : Hook {
  void OnPlacement(int node, core::Placement* placement) override {
    if (!placement->BlockOf(node, 3) || node < 3) *placement = {};
  }
};

// The processes of a move that was told and not agreed on have weight in elections.
struct MovedCountAtOnce : Hook {
  bool CountsAtOnce() override { return true; }
};

// A launcher that was started anew is taken for one that remembers whom it had promised itself to.
struct NewcomerDecides : Hook {
  void BeforeController(const ControllerCore&, ControllerEvent* event, Extra*) override {
    if (std::holds_alternative<core::LauncherNew>(*event)) *event = core::Tick{};
  }
  void OnLocalRanks(int, ElectionCore::LocalRanks* ranks) override { ranks->newcomer = false; }
};

// What it was asked while nobody led is lost.
struct StopForgotten : Hook {
  bool ForgetsStop() override { return true; }
};

}  // namespace

std::vector<Mutant> ElectionMutants() {
  return {
      {"votes_twice", "a launcher promises itself to one candidate in a term", "elections", 4, Promise::kOneDecider,
       Of<VotesTwice>(), true},
      {"quorum_off_by_one", "a leader has a majority", "spare_nodes", 84, Promise::kOneDecider, Of<OneRankMore>(),
       true},
      {"both_halves_lead", "of two halves the one with the lowest rank leads", "elections", 5, Promise::kOneDecider,
       Of<EverybodyLeads>(), true},
      {"stale_leader_obeyed", "an agent obeys no older term", "takeover", 174, Promise::kOneDecider, Of<ObeysAnyTerm>(),
       true},
      {"orders_while_listening", "who takes over orders nothing while it listens", "elections", 66,
       Promise::kUpdateOnce, Of<OrdersWhileListening>(), true},
      {"groups_unheard", "who takes over learns the replica groups", "takeover", 7, Promise::kInnocent,
       In(GroupsUnheard), true},
      {"moves_unheard", "launchers hear where the ranks live", "spare_nodes", 1216, Promise::kOneDecider,
       Of<MovesUnheard>(), true},
      {"moved_count_at_once", "ranks that were moved have no weight before the run went on", "spare_nodes", 20,
       Promise::kOneDecider, Of<MovedCountAtOnce>(), true},
      {"newcomer_decides", "a launcher that was started anew decides nothing against those who cannot be asked",
       "newcomers", 8720, Promise::kOneDecider, Of<NewcomerDecides>(), true},
      {"stop_forgotten", "a launcher keeps for the next leader what it was asked while nobody led", "leaderless", 7,
       Promise::kProgress, Of<StopForgotten>(), true},
      {"mismatch_ignored", "replicas that differ are found by the comparison", "comparison", 3, Promise::kBitIdentical,
       In(MismatchIgnored), true},
      {"comparison_skipped", "a comparison that is due is made", "comparison", 20, Promise::kBitIdentical,
       Of<ComparisonSkipped>(), true},
  };
}

}  // namespace kintsugi::sim
