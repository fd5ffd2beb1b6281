// The learning rate as a pure function of the step: linear warm-up, then half a cosine down to the minimum.
//
// Because it is a function, the scheduler is a derived object: nothing has to be saved or mirrored.
// Units: steps count from 1; the last scheduled step runs at the minimum, as do all later ones.
#pragma once

#include <cstdint>

#include "integrations/examples/byte_lm/config.h"

namespace kintsugi::byte_lm {

double LearningRate(const TrainConfig& config, int64_t step);

}  // namespace kintsugi::byte_lm
