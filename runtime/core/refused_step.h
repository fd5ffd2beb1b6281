// RefusedStep: what one rank knows of a step that a rank has refused; Judge: whether its data or a machine is to blame.
//
// Before its gate nobody has begun a step's update: where a rank refuses it, all make it again, from the same state and with
// the same inputs. What is refused twice by the same numbers is its data's fault, and is left out on all ranks. Where some
// ranks alone compute otherwise than before, their machines are to blame.
//
// Pure.
// Threads: one at a time.
// Errors: none.
// Invariants: what a rank tells of a step is the same in each attempt at an incident. All judge what all have told, alike.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace kintsugi::core {

// What a rank has computed in a step, and computes again from the same inputs: by what it is of, in the order of the step.
using StepNumbers = std::map<std::string, std::vector<uint64_t>>;

// As far as both came.
bool Differ(const StepNumbers& before, const StepNumbers& now);

// What a rank tells the others of a step.
struct StepFacts {
  std::string why;      // it refuses it; empty: it does not
  bool doubts = false;  // made again the step is good, and this rank's numbers are others than when it was refused
  uint32_t times = 0;   // so often it has been refused before, as far as this rank knows
  std::optional<bool> differs;      // its numbers from those of the time before; none: it has nothing to compare
  std::string left_out;             // why all have agreed on leaving it out; empty: they have not
  std::set<uint64_t> all_left_out;  // earlier ones too
  bool operator==(const StepFacts&) const = default;
};

// What several ranks tell of a step, in one: as long for a thousand of them as for eight, but for those that differ.
struct StepNews {
  uint64_t ranks = 0;     // that were asked
  std::string why;        // who refuses it, and why: the first few of them
  uint64_t refusing = 0;  // so many do
  bool doubts = false;    // any of them
  uint32_t times = 0;     // the most that any knows of
  uint64_t compared = 0;  // so many have something to compare
  std::vector<Rank> differ;
  std::string left_out;
  std::set<uint64_t> all_left_out;

  // Whose `times` is less than another's has not heard that all went on since: it tells again what was judged, and counts
  // for what was left out alone.
  // REQUIRES: ranks come in ascending order.
  void Add(Rank rank, const StepFacts& facts);
};

struct StepVerdict {
  enum class Says : uint8_t {
    kAgain,      // it is computed again
    kData,       // it is left out
    kMachine,    // those of `to_blame` give way, and it is computed again
    kUnsettled,  // the program is not deterministic, as far as can be told: nobody is to blame, and it counts as it comes
  };
  Says says = Says::kAgain;
  std::string why;             // who refuses it, and why
  std::vector<Rank> to_blame;  // ascending
  bool is_exact = true;        // computed again, the numbers were the same

  // For the incident's record.
  std::string Describe(Step step) const;
};

// Nothing: nobody refuses the step, nor doubts it.
std::optional<StepVerdict> Judge(const StepNews& told);

class RefusedStep {
 public:
  // All go on: what this rank has told is judged, and is not told at another incident, which may come before its step begins.
  void GoOn();
  void Begin(Step step);
  Step step() const { return step_; }
  void Note(const std::string& of, uint64_t number) { numbers_[of].push_back(number); }
  bool has_numbers() const { return !numbers_.empty(); }
  void Refuse(const std::string& why) { why_ = why; }
  // Empty: this rank does not refuse the step under way.
  const std::string& why() const { return why_; }
  // At the gate: the step was refused before, and this rank's numbers were others then.
  bool IsOtherThanBefore() const;
  void Doubt() { doubts_ = true; }

  // Of the step behind the one at which all stand.
  StepFacts Tell(Step standing) const;
  // What all have told. The verdict, where somebody refuses the step.
  std::optional<StepVerdict> Learn(Step standing, const StepNews& told);

  // What was computed counts as another program's: the step will be made by other ranks.
  void ForgetNumbers();

  // Why all leave this step out; null: they do not.
  const std::string* LeftOut(Step step) const;
  const std::set<uint64_t>& all_left_out() const { return all_left_out_; }
  bool IsToBlame(Rank rank) const;
  // It goes on, though its machine is to blame.
  void Forgive() { verdict_.reset(); }

 private:
  struct Case {
    Step step;
    uint32_t times = 0;
    std::optional<StepNumbers> numbers;  // of this rank, the last time
  };

  Step step_;  // that is made, or was
  StepNumbers numbers_;
  std::string why_;
  bool doubts_ = false;
  std::optional<Case> case_;
  std::optional<Case> before_;  // ... as the step under way began
  std::optional<StepVerdict> verdict_;
  std::set<uint64_t> all_left_out_;
};

}  // namespace kintsugi::core
