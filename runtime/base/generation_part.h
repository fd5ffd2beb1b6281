// Ranks without a majority save and leave: several such parts at once, where a network falls to pieces. Each counts its
// generations in a range of its own, told apart by who leads it, so that none writes where another does.
#pragma once

#include "runtime/base/ids.h"

namespace kintsugi {

inline constexpr int kPartShift = 20;
// 0: the run's own range.
constexpr uint64_t PartOf(Generation generation) { return generation.value() >> kPartShift; }

}  // namespace kintsugi
