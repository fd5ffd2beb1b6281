// Which part of a parameter a model-parallel rank's slice is, by the patterns of DeepSpeed's universal_checkpoint_info.
//
// What: a slice is a row of boxes of the whole parameter, one behind the other in the slice's row-major order. One
// rank: the whole. Several: replicated parameters are each rank's whole, row-parallel ones are cut along axis 1,
// two sub-parameters are interleaved along axis 0, vocabularies lose their padding, all others are cut along axis 0.
// Errors: kInvalidArgument names the parameter and the rule that is not read (averaged parameters are no bytes of
// theirs; sub-parameters of other shapes; a fold of several data layouts).
// Threads: pure. Source: deepspeed/checkpoint/ds_to_universal.py (0.19.8), merge_tp_slices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/formats/catalog.h"
#include "replica/formats/pickle/tree.h"
#include "replica/layout/box.h"

namespace kintsugi::formats::deepspeed {

struct Patterns {
  std::vector<std::string> replicated, averaged, row_parallel, vocabulary, two_parts, sub_parts;
  std::optional<int64_t> vocabulary_rows;
  bool has_affine_map = false;
  bool is_there = false;
};
Patterns PatternsOf(const pickle::Tree& tree, pickle::NodeId info);

struct SlicePart {
  layout::Box box;    // of the whole parameter
  int64_t start = 0;  // element of the slice where it begins
};
struct Slices {
  Shape shape;                                // of the whole parameter
  std::vector<std::vector<SlicePart>> parts;  // by model-parallel rank
  std::vector<int64_t> elements;              // of each rank's slice, with a vocabulary's padding
  std::optional<int> axis;                    // along which it is cut, where it is
  bool is_vocabulary = false;
  int sub_parts = 1;
};
// `shapes`: the slice's, by model-parallel rank. `place` is the folder, for messages.
Result<Slices> SlicesOf(const std::string& name, const std::vector<Shape>& shapes, const Patterns& patterns,
                        const std::string& place);

// Stage 3: the equal part of data rank `rank` of `ranks`, the last ones shorter or empty.
FlatRange PartOf(int64_t elements, int rank, int ranks);

}  // namespace kintsugi::formats::deepspeed
