#include "tools/certify/certify_plan.h"

#include <cctype>
#include <iterator>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

struct Kind {
  const char* name;
  Injection fault;
};

std::vector<Kind> MainKinds() {
  return {{"exception", {.kind = InjectionKind::kThrow}}, {"kill", {.kind = InjectionKind::kKill}}};
}

std::vector<Kind> OtherKinds() {
  return {{"exit", {.kind = InjectionKind::kExit}},
          {"damaged tensors", {.kind = InjectionKind::kUce}},
          {"damaged memory", {.kind = InjectionKind::kUce, .level = UceLevel::kHigh}},
          {"freeze", {.kind = InjectionKind::kFreeze}},
          {"hang", {.kind = InjectionKind::kHang, .until = HangUntil::kStop}}};
}

class Planner {
 public:
  explicit Planner(const CertifyScope& scope)
      : scope_(scope), last_(scope.world_size - 1), step_(StruckStep(scope.steps)) {}

  std::vector<CertifyCell> Make() {
    AddRows(MainKinds(), Rank(last_));
    if (last_ > 0) {
      if (scope_.quick)
        for (const Kind& kind : MainKinds())
          for (TrainPhase phase : {TrainPhase::kBackward, TrainPhase::kUpdate}) Add(kind, Rank(0), phase);
      else
        AddRows(MainKinds(), Rank(0));
    }
    AddDoubles();
    if (scope_.quick) return std::move(cells_);
    AddCollectives();
    AddRows(OtherKinds(), Rank(last_));
    if (last_ > 0) AddRows(OtherKinds(), Rank(0));
    return std::move(cells_);
  }

 private:
  void AddRows(const std::vector<Kind>& kinds, Rank rank) {
    for (const Kind& kind : kinds)
      for (const TrainPhaseNameEntry& entry : kTrainPhases) Add(kind, rank, entry.phase);
  }

  void Add(const Kind& kind, Rank rank, TrainPhase phase) {
    Injection fault = kind.fault;
    fault.rank = rank;
    fault.step = step_;
    fault.phase = phase;
    cells_.push_back({std::string(kind.name) + ", rank " + rank.ToString(), phase, {fault}});
  }

  // Another rank stands in the one before it or blocks in the same one: what that leaves behind, no phase shows.
  void AddCollectives() {
    for (int number = 1; number <= kCollectivesTried; ++number)
      cells_.push_back({"exception at collective " + std::to_string(number) + ", rank " + std::to_string(last_),
                        std::nullopt,
                        {{.kind = InjectionKind::kThrow, .rank = Rank(last_), .step = step_, .collective = number}}});
  }

  Injection Fault(InjectionKind kind, int rank, Step step, TrainPhase phase) const {
    return {.kind = kind, .rank = Rank(rank), .step = step, .phase = phase};
  }

  void AddDoubles() {
    const auto kill = InjectionKind::kKill, raise = InjectionKind::kThrow;
    const bool has_next = step_.value() < scope_.steps;
    const auto add = [&](const char* what, Injection a, Injection b) {
      cells_.push_back({what, std::nullopt, {a, b}});
    };
    // The second of these strikes while the first one's step is computed again.
    add("an exception, then a kill in the same step", Fault(raise, last_, step_, TrainPhase::kBackward),
        Fault(kill, 0, step_, TrainPhase::kUpdate));
    if (has_next && last_ > 0)
      add("kills of two ranks in two steps", Fault(kill, last_, step_, TrainPhase::kUpdate),
          Fault(kill, 0, step_.Next(), TrainPhase::kUpdate));
    if (scope_.quick) return;
    add("two exceptions of one rank in one step", Fault(raise, last_, step_, TrainPhase::kForward),
        Fault(raise, last_, step_, TrainPhase::kUpdate));
    if (last_ > 0) {
      add("exceptions on two ranks at once", Fault(raise, last_, step_, TrainPhase::kGate),
          Fault(raise, 0, step_, TrainPhase::kGate));
      add("kills of two ranks at once", Fault(kill, last_, step_, TrainPhase::kForward),
          Fault(kill, 0, step_, TrainPhase::kForward));
    }
    if (has_next)
      add("kills of one rank in two steps", Fault(kill, last_, step_, TrainPhase::kBackward),
          Fault(kill, last_, step_.Next(), TrainPhase::kBackward));
  }

  const CertifyScope scope_;
  const int last_;
  const Step step_;
  std::vector<CertifyCell> cells_;
};

}  // namespace

std::string CertifyCell::Name() const { return phase ? row + ", " + std::string(TrainPhaseName(*phase)) : row; }

std::string CertifyCell::Slug() const {
  std::string slug;
  for (const char c : Name())
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      slug += c;
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  return slug;
}

bool CertifyCell::IsAtCollective() const { return faults.size() == 1 && faults.front().collective > 0; }

namespace {

TrainPhase MarkedUpTo(TrainPhase phase, const std::set<TrainPhase>& unmarked) {
  for (auto at = std::rbegin(kTrainPhases); at != std::rend(kTrainPhases); ++at)
    if (at->phase <= phase && unmarked.count(at->phase) == 0) return at->phase;
  return TrainPhase::kUpdate;
}

}  // namespace

CertifyCell WithinMarked(CertifyCell cell, const std::set<TrainPhase>& unmarked) {
  if (cell.phase || cell.IsAtCollective()) return cell;
  for (Injection& fault : cell.faults) fault.phase = MarkedUpTo(fault.phase, unmarked);
  return cell;
}

Step StruckStep(uint64_t steps) { return Step(steps < 4 ? 1 : steps / 2); }

std::vector<CertifyCell> MakeCertifyPlan(const CertifyScope& scope) {
  KINTSUGI_CHECK(scope.world_size >= 1 && scope.steps >= 2, "a plan needs a rank and two steps");
  return Planner(scope).Make();
}

}  // namespace kintsugi
