// Veto: the rules by which steps are refused without a word of the trainer's (--veto); StepRules: what of a step one rank goes
// by, and whether it refuses the step. What follows is runtime/core/refused_step.h's.
//
// A loss is a rank's own. The norm of the gradients all have summed up, so that all find it alike.
//
// Pure.
// Threads: one at a time.
// Errors: Parse: kInvalidArgument names the word that is no rule. Judge: kFailedPrecondition: a rule has nothing to go by.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi::core {

struct Veto {
  bool nan = false;         // a reported loss, or the norm of the gradients, is no finite number
  double spike = 0;         // a reported loss lies so many standard deviations above those before; 0: no such rule
  double norm = 0;          // the norm of all gradients is above it; 0: no such rule
  uint64_t back = 0;        // so many steps before one that is left out are left out with it
  std::optional<int> most;  // steps may be left out in a run; none: it is not said

  // "nan,spike:6,norm:1e3,back:3,most:10".
  KINTSUGI_EXPORT static Result<Veto> Parse(std::string_view text);
  bool has_rules() const { return nan || spike > 0 || norm > 0; }
};

class KINTSUGI_EXPORT StepRules {
 public:
  static constexpr size_t kUsual = 64;   // losses that the next one is compared with
  static constexpr size_t kFewest = 16;  // with fewer nobody knows what is usual

  struct Refusal {
    std::string why;
    bool of_all = false;  // by what all ranks have summed up
  };

  explicit StepRules(const Veto& veto) : veto_(veto) {}
  const Veto& veto() const { return veto_; }

  // A step begins.
  void Begin();
  void NoteLoss(double loss, std::span<const uint64_t> samples);
  void NoteNorm(double norm) { norm_ = norm; }
  // Whether the norm of all gradients is to be known before the verdict. Where a rank's own loss refuses the step it is not.
  bool AsksNorm() const;
  // Before the gate. None: the step is good.
  Result<std::optional<Refusal>> Judge() const;
  // The step was good, and its update begins.
  void PassGate();

  // Of the newest good steps, where a spike is told by them.
  const std::vector<double>& losses() const { return losses_; }
  void TakeLosses(std::vector<double> losses) { losses_ = std::move(losses); }
  // How many standard deviations it lies above the mean of these; 0 while too few are known.
  double Deviations(double loss) const;

 private:
  std::string WhyOfLoss() const;
  std::string OfSamples() const;

  Veto veto_;
  std::optional<double> loss_, norm_;  // of the step under way
  std::vector<uint64_t> samples_;      // the first few of it
  size_t sample_count_ = 0;
  std::vector<double> losses_;
};

}  // namespace kintsugi::core
