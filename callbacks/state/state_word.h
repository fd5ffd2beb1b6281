// State words: what optimizers call their states in the names of tensors, "exp_avg" as "moment1_0".
//
// What: two spellings are known. The word stands before the parameter, as a part of its own, "optimizer.state.exp_avg.w"
// (Megatron-core), or behind it: "optim.state.w.exp_avg" (torch DCP), "zero.w.fp32" (DeepSpeed as Kintsugi names it),
// "w.moment1_0" and, joined by "_", "linear_0.w_0_moment1_0" and "linear_0.w_0_fp32_master_0_moment1_0" (Paddle, dynamic
// and static graphs: the same state, with and without the master weight's name in it). Parts end at "." or "/".
// Whether a tensor that is called so is a state is for the caller to find out: a module may be called "step" too.
// Threads: pure.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/base/export.h"

namespace kintsugi {

// States of one meaning may stand for each other, whatever they are called.
enum class StateMeaning {
  kMasterWeight,
  kFirstMoment,
  kSecondMoment,
  kLargestSecondMoment,
  kMomentum,
  kSquareAverage,
  kGradientAverage,
  kSummedDelta,
  kInfinityNorm,
  kSum,
  kStep,
  kFirstDecay,   // beta1 to the power of the steps
  kSecondDecay,  // beta2
};

// Views into the key: prefix + parameter + suffix.
struct StateName {
  std::string_view prefix, parameter, suffix;
  std::string_view family;  // of `prefix`, what stands before the word: "optimizer."
  std::string_view word;
  StateMeaning meaning = StateMeaning::kFirstMoment;
  bool is_scalar = false;  // one number for the parameter; others have the parameter's shape
  bool is_of_all = false;  // an optimizer that keeps it of one parameter keeps it of each
};

// Nothing where no part of the key is a state's word, or where no parameter is left beside it.
KINTSUGI_EXPORT std::optional<StateName> ParseStateName(std::string_view key);

}  // namespace kintsugi
