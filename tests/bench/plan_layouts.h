// Layouts for the planner's benchmark, as metadata alone: grids, flat ranges, a Llama-3 of 405 billion parameters.
#pragma once

#include <string>

#include "replica/layout/metadata.h"

namespace kintsugi::bench {

// How the tensors of a layout are cut.
enum class Cut { kLine, kPlane, kSpace, kFlat };

// About `shards` shards of equal tensors, each cut into 1,024 pieces (source: 3/4 as many on the first axis), one for
// each of 1,024 ranks. Kinds: 1, 2 or 3 axes, or flat ranges of a tensor of 2 axes.
layout::Metadata Tensors(Cut cut, uint64_t shards, bool is_source);

// One tensor cut into about `shards` pieces on 1,024 ranks.
layout::Metadata OneTensor(Cut cut, uint64_t shards, bool is_source);

// How a model is spread: tensor, pipeline and data parallel, parameters in bf16, and the three fp32 states of an Adam
// whose parts ZeRO-1 cuts flat over the data parallel ranks.
struct Parallel {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  int ranks() const { return tensor * pipeline * data; }
};
layout::Metadata Llama3_405B(const Parallel& parallel);

}  // namespace kintsugi::bench
