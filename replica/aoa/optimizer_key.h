// Optimizer keys: a model key with one of five suffixes (Paddle's accumulators). A state follows its model key.
#pragma once

#include <array>
#include <string_view>

#include "runtime/base/export.h"

namespace kintsugi::aoa {

enum class StateKind {
  kModel,   // no suffix
  kTensor,  // .w_0, .moment1_0, .moment2_0: has the model key's shape
  kScalar,  // .beta1_pow_acc_0, .beta2_pow_acc_0: one number
};

struct SplitKey {
  std::string_view model;
  std::string_view suffix;  // empty: a model key
  StateKind kind = StateKind::kModel;
};

// The suffixes of states that have the model key's shape, in the order in which they are asked.
inline constexpr std::array<std::string_view, 3> kTensorSuffixes = {".w_0", ".moment1_0", ".moment2_0"};
inline constexpr std::array<std::string_view, 2> kScalarSuffixes = {".beta1_pow_acc_0", ".beta2_pow_acc_0"};

// Views into `key`. A bare suffix is a model key: there would be no model.
KINTSUGI_EXPORT SplitKey SplitSuffix(std::string_view key);

}  // namespace kintsugi::aoa
