// Mutants of who takes part: what an attempt at a smaller world tells, keeps and takes over.
#include <algorithm>

#include "tests/sim/mutants.h"

namespace kintsugi::sim {
namespace {

PhaseOrder* RebuildIn(ControllerAction* action) {
  auto* const send = std::get_if<Send>(action);
  auto* const order = send ? std::get_if<PhaseOrder>(&send->message) : nullptr;
  return order && order->phase == Phase::kRebuild ? order : nullptr;
}

// The last rank of a smaller world is told of all seats.
class TwoWorlds : public Hook {
 public:
  void AfterController(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions)
      if (PhaseOrder* const order = RebuildIn(&action);
          order && !order->crew.empty() && std::get<Send>(action).header.rank == order->crew.back())
        order->crew.clear();
  }
};

// Nobody in the smaller world is told of it.
class OldWorld : public Hook {
 public:
  void AfterController(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions)
      if (PhaseOrder* const order = RebuildIn(&action)) order->crew.clear();
  }
};

// Who leaves is not told.
class NobodyLeaves : public Hook {
 public:
  void AfterController(const ControllerCore& core, const ControllerEvent&,
                       std::vector<ControllerAction>* actions) override {
    if (core.phase() == Phase::kEnded) return;
    std::erase_if(*actions, [](const ControllerAction& action) {
      const auto* const send = std::get_if<Send>(&action);
      return send && std::holds_alternative<core::EndOrder>(send->message);
    });
  }
};

// A controller that takes over hears from nobody who takes part.
class CrewUntold : public Hook {
 public:
  void BeforeController(const ControllerCore&, ControllerEvent* event, std::vector<ControllerEvent>*) override {
    auto* const from = std::get_if<FromAgent>(event);
    if (auto* const join = from ? std::get_if<JoinRequest>(&from->message) : nullptr)
      join->crew.clear(), join->crew_since = Generation();
  }
};

// Where ranks come to the run, those that were there are told of themselves alone.
class OnlyOldOnes : public Hook {
 public:
  void AfterController(const ControllerCore& core, const ControllerEvent&,
                       std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions) {
      PhaseOrder* const order = RebuildIn(&action);
      if (order && order->rung == Rung::kGrow && core.crew().Has(std::get<Send>(action).header.rank))
        order->crew = core.crew().Told();
    }
  }
};

// Who comes goes on with what was kept of its object when it left.
class OldObject : public Hook {
 public:
  bool KeepsOldObject() override { return true; }
};

// What the seats that are gone did nobody does.
class PartsLost : public Hook {
 public:
  void OnParts(Rank, std::map<Rank, Object>* seats, const core::Crew&) override { seats->clear(); }
};

// ... two do.
class PartsDoubled : public Hook {
 public:
  void OnParts(Rank, std::map<Rank, Object>* seats, const core::Crew& crew) override {
    for (int seat = 0; seat < crew.seats(); ++seat)
      if (!crew.Has(Rank(seat))) (*seats)[Rank(seat)];
  }
};

// A host that is back is taken for one that is away.
class NobodyIsBack : public Hook {
 public:
  void BeforeController(const ControllerCore&, ControllerEvent* event, std::vector<ControllerEvent>*) override {
    const auto* const away = std::get_if<core::PlacesAway>(event);
    if (away && away->ranks.empty()) *event = core::Tick{};
  }
};

// Who takes over fills places that an operator wanted empty.
class WordForgotten : public Hook {
 public:
  bool ForgetsWord() override { return true; }
};

// A process that was not in the run yet has a vote, beside that of the one before it.
class FreshOnesVote : public Hook {
 public:
  bool FreshVotes() override { return true; }
};

PhaseOrder* OrderIn(ControllerAction* action, Phase phase) {
  auto* const send = std::get_if<Send>(action);
  auto* const order = send ? std::get_if<PhaseOrder>(&send->message) : nullptr;
  return order && order->phase == phase ? order : nullptr;
}

// Of the pieces that move where state is cut anew, one does not.
class PieceLeft : public Hook {
 public:
  void OnPieceMoves(std::vector<PieceMove>* moves) override { moves->pop_back(); }
};

// Who keeps the snapshot of a rank that is lost does not bring it.
class CopyLeft : public Hook {
 public:
  void AfterController(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions)
      if (PhaseOrder* const order = OrderIn(&action, Phase::kRepair); order && order->relayout && order->from_snapshot)
        order->moves.clear();
  }
};

// Pieces of a snapshot's step come beside what was registered before, which counts as of that step.
class OldStepKept : public Hook {
 public:
  void AfterController(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions)
      if (PhaseOrder* const order = OrderIn(&action, Phase::kRepair); order && order->relayout)
        order->from_snapshot = false;
  }
};

// What was cut anew takes the place of what was registered before all have compared it.
class FreedEarly : public Hook {
 public:
  void AfterController(const ControllerCore& core, const ControllerEvent&,
                       std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions)
      if (PhaseOrder* const order = OrderIn(&action, Phase::kVerify)) order->registered_in = core.generation();
  }
};

// Nobody is told which registration counts.
class CountUntold : public Hook {
 public:
  void AfterController(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions)
      if (auto* const send = std::get_if<Send>(&action))
        if (auto* const order = std::get_if<PhaseOrder>(&send->message)) order->registered_in = Generation();
  }
};

// A rank that goes back to what was registered before keeps what was cut anew.
class CutKept : public Hook {
 public:
  void AfterController(const ControllerCore& core, const ControllerEvent&,
                       std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions) {
      if (PhaseOrder* const order = OrderIn(&action, Phase::kRollback); order && order->relayout)
        cut_ = core.generation();
      if (PhaseOrder* const order = OrderIn(&action, Phase::kClean)) order->registered_in = cut_;
    }
  }

 private:
  Generation cut_;
};

// What a launcher holds is mapped in whatever layout it was.
class AnyMemory : public Hook {
 public:
  bool AdoptsAnyLayout() override { return true; }
};

// Who leaves ends before its pieces have gone.
class LeavesAtOnce : public Hook {
 public:
  void AfterController(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions)
      if (PhaseOrder* const order = OrderIn(&action, Phase::kRepair);
          order && order->relayout && !order->crew.empty()) {
        Send& send = std::get<Send>(action);
        if (!std::binary_search(order->crew.begin(), order->crew.end(), send.header.rank))
          send.message = core::EndOrder{0, "it takes no part any more"};
      }
  }
};

template <typename M>
std::unique_ptr<Hook> Make() {
  return std::make_unique<M>();
}

}  // namespace

std::vector<Mutant> CrewMutants() {
  return {
      {"two_worlds", "all of a generation are told one crew", "elastic", 2, Promise::kOneDecider, Make<TwoWorlds>},
      {"old_world", "a crew that changes is told", "elastic", 2, Promise::kOneDecider, Make<OldWorld>, true},
      {"nobody_leaves", "who takes no part any more is told so", "elastic", 104, Promise::kTable, Make<NobodyLeaves>},
      {"crew_untold", "a controller that takes over hears who takes part", "elastic", 450, Promise::kSameStep,
       Make<CrewUntold>},
      {"only_old_ones", "where ranks come, all are told of all", "elastic", 9, Promise::kOneDecider, Make<OnlyOldOnes>},
      {"old_object", "who comes takes over what the others have, not what was kept of it", "elastic", 9,
       Promise::kSameStep, Make<OldObject>},
      {"nobody_is_back", "places whose host is back are filled again", "elastic_hosts", 23, Promise::kProgress,
       Make<NobodyIsBack>},
      {"word_forgotten", "who takes over knows how many ranks an operator wanted", "elastic_hosts", 35, Promise::kTable,
       Make<WordForgotten>},
      {"fresh_ones_vote", "a process that was not in the run yet has no vote of its own", "elastic_hosts", 1140,
       Promise::kOneDecider, Make<FreshOnesVote>, true},
      {"piece_left", "every piece moves where state is cut anew", "relayout", 4, Promise::kSameStep, Make<PieceLeft>},
      {"copy_left", "a lost rank's pieces come from who keeps its snapshot", "lost_shards", 2, Promise::kSameStep,
       Make<CopyLeft>},
      {"old_step_kept", "who goes back to a snapshot brings that, not what it holds", "lost_shards", 2,
       Promise::kUpdateOnce, Make<OldStepKept>},
      {"freed_early", "what was held before is freed once all have compared what was cut anew", "relayout", 4,
       Promise::kInnocent, Make<FreedEarly>},
      {"count_untold", "who has not heard that the run goes on is told which registration counts", "relayout", 1332,
       Promise::kSameStep, Make<CountUntold>},
      {"cut_kept", "a fault in a change comes back to what was registered before", "relayout", 156, Promise::kInnocent,
       Make<CutKept>},
      {"any_memory", "memory is mapped in the layout that it was registered in", "relayout", 1349, Promise::kSameStep,
       Make<AnyMemory>},
      {"leaves_at_once", "who leaves gives away what it holds first", "relayout", 9, Promise::kInnocent,
       Make<LeavesAtOnce>},
      {"parts_lost", "what a seat that is gone did is done", "elastic", 2, Promise::kBitIdentical, Make<PartsLost>},
      {"parts_doubled", "... once", "elastic", 6, Promise::kBitIdentical, Make<PartsDoubled>},
  };
}

}  // namespace kintsugi::sim
