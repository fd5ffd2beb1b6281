// Mutants of refused steps: when data is blamed, who leaves a step out, and how many of them.
#include <algorithm>

#include "tests/sim/mutants.h"

namespace kintsugi::sim {
namespace {

// The data is blamed as soon as anybody refuses a step.
class FirstWordCounts : public Hook {
 public:
  void OnStepNews(Rank, Step, core::StepNews* news) override {
    if (news->refusing > 0) news->times = std::max(news->times, 1u);
  }
};

// What made a rank doubt its own numbers, or refuse, is laid to the data.
class MachinesAreBelieved : public Hook {
 public:
  void OnStepNews(Rank, Step, core::StepNews* news) override {
    if (news->times == 0 || news->differ.empty()) return;
    news->differ.clear();
    news->doubts = false;
    news->refusing = std::max<uint64_t>(news->refusing, 1);
  }
};

// A rank does not hear what all agree on.
class OneIsDeaf : public Hook {
 public:
  void OnStepNews(Rank rank, Step, core::StepNews* news) override {
    if (rank == Rank(1)) *news = {};
  }
};

// What was left out behind the step at which all stand is forgotten, and comes back.
class ForgetsWhatIsLeftOut : public Hook {
 public:
  void OnStepNews(Rank, Step standing, core::StepNews* news) override {
    std::erase_if(news->left_out, [standing](const auto& known) { return known.first > standing.value() + 1; });
  }
};

// Whose machine is to blame gives way though nobody may come in its place.
class GivesWay : public Hook {
 public:
  bool GivesWayAnyhow() override { return true; }
};

class KnowsNoLimit : public Hook {
 public:
  bool LeavesOutAnyNumber() override { return true; }
};

}  // namespace

std::vector<Mutant> RefusalMutants() {
  return {
      {"refusal_first_word", "a refused step is computed again before its data is blamed", "refusals", 3,
       Promise::kInnocent, [] { return std::make_unique<FirstWordCounts>(); }},
      {"refusal_machine_believed", "who computes otherwise than before is to blame, not the data", "refusals", 3,
       Promise::kInnocent, [] { return std::make_unique<MachinesAreBelieved>(); }},
      {"refusal_one_deaf", "what one leaves out all leave out", "refusals", 1, Promise::kInnocent,
       [] { return std::make_unique<OneIsDeaf>(); }},
      {"refusal_forgotten", "what was left out is left out again", "refusals", 29, Promise::kInnocent,
       [] { return std::make_unique<ForgetsWhatIsLeftOut>(); }},
      {"refusal_gives_way", "a rank gives way only where a process may come", "refusals", 9, Promise::kTable,
       [] { return std::make_unique<GivesWay>(); }},
      {"refusal_no_limit", "never more steps are left out than may be", "refusals", 16, Promise::kTable,
       [] { return std::make_unique<KnowsNoLimit>(); }},
  };
}

}  // namespace kintsugi::sim
