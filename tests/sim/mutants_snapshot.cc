// Mutants of in-memory snapshots: what counts as one, and what is kept of the newest.
#include "tests/sim/mutants.h"

namespace kintsugi::sim {
namespace {

SnapshotReport* ReportIn(ControllerEvent* event) {
  auto* from = std::get_if<FromAgent>(event);
  return from ? std::get_if<SnapshotReport>(&from->message) : nullptr;
}

// A copy that the gate overtook counts as whole, and nobody compares digests.
class UnfinishedCounts : public Hook {
 public:
  bool CountsUnfinishedCopy() override { return true; }
  void BeforeController(const ControllerCore&, ControllerEvent* event, std::vector<ControllerEvent>*) override {
    if (SnapshotReport* report = ReportIn(event)) report->digests.clear();
  }
};

// Whatever a rank holds stands for the step that was asked for: one that made none counts as one that did.
class MixedStepsCount : public Hook {
 public:
  bool TakesAnyStep() override { return true; }
  void AfterController(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) override {
    for (const ControllerAction& action : *actions)
      if (const auto* send = std::get_if<Send>(&action))
        if (const auto* order = std::get_if<SnapshotOrder>(&send->message))
          partner_[send->header.rank] = order->partner;
  }
  void BeforeController(const ControllerCore& core, ControllerEvent* event,
                        std::vector<ControllerEvent>* after) override {
    SnapshotReport* report = ReportIn(event);
    if (!report) return;
    report->digests.clear();
    if (report->code == StatusCode::kOk) return;
    report->code = StatusCode::kOk;
    FromAgent kept = std::get<FromAgent>(*event);
    if (kept.header.rank != report->owner || partner_[report->owner].value() < 0) return;
    kept.header.rank = partner_[report->owner];
    kept.header.incarnation = core.members()[static_cast<size_t>(kept.header.rank.value())].incarnation;
    after->push_back(kept);
  }

 private:
  std::map<Rank, Rank> partner_;
};

// The newest that counts is overwritten by the one in the making.
class KeepsNothing : public Hook {
 public:
  void AfterAgent(Rank, const AgentCore&, const AgentEvent&, std::vector<AgentAction>* actions) override {
    for (AgentAction& action : *actions)
      if (auto* arm = std::get_if<ArmSnapshot>(&action)) arm->order.keep = kintsugi::Step();
  }
};

// A copy that went with its process is still counted on.
class CopiesOutliveTheirProcess : public Hook {
 public:
  void AfterController(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions) {
      auto* send = std::get_if<Send>(&action);
      auto* order = send ? std::get_if<PhaseOrder>(&send->message) : nullptr;
      if (order && order->from_snapshot) order->moves.clear();
    }
  }
};

}  // namespace

std::vector<Mutant> SnapshotMutants() {
  return {
      {"snapshot_unfinished", "a copy that the gate overtook does not count, and digests are compared", "snapshots", 22,
       Promise::kInnocent, [] { return std::make_unique<UnfinishedCounts>(); }},
      {"snapshot_mixed_steps", "a snapshot is of one step on all ranks", "snapshots", 8, Promise::kCheckpoint,
       [] { return std::make_unique<MixedStepsCount>(); }},
      {"snapshot_overwritten", "the newest that counts is kept", "snapshots", 47, Promise::kCheckpoint,
       [] { return std::make_unique<KeepsNothing>(); }},
      {"snapshot_of_the_dead", "what a process kept is lost with it", "snapshots", 8, Promise::kCheckpoint,
       [] { return std::make_unique<CopiesOutliveTheirProcess>(); }},
  };
}

}  // namespace kintsugi::sim
