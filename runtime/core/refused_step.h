// RefusedStep: what one rank knows of a step that a rank has refused; Judge: whether its data or a machine is to blame.
//
// Before its gate nobody has begun a step's update: where a rank refuses it, all make it again, from the same state and with
// the same inputs. What is refused twice by the same numbers is its data's fault, and is left out on all ranks. Where some
// ranks alone compute otherwise than before, their machines are to blame.
//
// What is left out is so by its number, wherever the run goes back to. Whoever refuses a step can ask that some before it go with
// it: all agree on that first, and the run goes back as far as it can (halt.h).
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
  std::optional<bool> differs;  // its numbers from those of the time before; none: it has nothing to compare
  uint64_t back = 0;            // so many steps before it are to be left out with it, should its data be to blame
  std::map<uint64_t, std::string> left_out = {};  // steps that all leave out wherever they come to them, and why
  std::set<uint64_t> all_left_out = {};           // those that are no part of the state that all stand at
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
  uint64_t back = 0;  // the most that any who refuses it asks for
  std::map<uint64_t, std::string> left_out;
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
  uint64_t back = 0;           // kData: so many steps before it are left out with it, as far as the run can go back

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
  // `back`: so many steps before it are to be left out with it.
  void Refuse(const std::string& why, uint64_t back) { why_ = why, back_ = back; }
  // Empty: this rank does not refuse the step under way.
  const std::string& why() const { return why_; }
  // At the gate: the step was refused before, and this rank's numbers were others then.
  bool IsOtherThanBefore() const;
  void Doubt() { doubts_ = true; }

  // Of the step behind the one at which all stand.
  StepFacts Tell(Step standing) const;
  // What all have told. The verdict, where somebody refuses the step.
  std::optional<StepVerdict> Learn(Step standing, const StepNews& told);
  // All stand where they are to be left out already: the run is to go back, to before this step; none: it need not, or not any more.
  std::optional<Step> BackFrom(Step standing) const;
  // What of that comes of it, for the incident's record; empty: nothing was ordered.
  std::string DescribeBack(Step standing) const;

  // What was computed counts as another program's: the step will be made by other ranks.
  void ForgetNumbers();

  // Why all leave this step out, whenever they come to it; null: they do not.
  const std::string* LeftOut(Step step) const;
  // The first one behind `after`.
  std::optional<Step> NextLeftOut(Step after) const;
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
  // Steps that are to be left out together. Those that the run cannot go back to before stay part of the state.
  struct Order {
    Step from, refused;
    std::string why;
  };

  Step step_;  // that is made, or was
  StepNumbers numbers_;
  std::string why_;
  uint64_t back_ = 0;
  bool doubts_ = false;
  std::optional<Case> case_;
  std::optional<Case> before_;  // ... as the step under way began
  std::optional<StepVerdict> verdict_;
  std::optional<Order> order_;  // of the incident under way
  std::map<uint64_t, std::string> left_out_;
  std::set<uint64_t> all_left_out_;
};

}  // namespace kintsugi::core
