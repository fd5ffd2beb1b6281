// Places of ranks in their loops, short to write.
#pragma once

#include "runtime/base/train_phase.h"

namespace kintsugi::core {

inline Progress In(uint64_t step, TrainPhase phase, Activity activity = Activity::kNone) {
  return {step, phase, activity};
}
inline Progress With(uint64_t step, TrainPhase phase, uint32_t collectives) {
  return {step, phase, Activity::kNone, collectives};
}

}  // namespace kintsugi::core
