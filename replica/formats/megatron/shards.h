// Which part of which tensor a model-parallel rank of Megatron's GPT holds, and under which name.
//
// What: a checkpoint names tensors as a whole: with all layers in one ("decoder.layers.mlp.linear_fc2.weight", its first axis the
// layers), each alone ("decoder.layers.3.."), a gated first matrix in one or in two (".._w", ".._v"). A rank's file has the layers
// of its stage, counted from 0, and of each tensor its part: column-parallel ones along the first axis, row-parallel ones along
// the second, of a gated matrix its part of the gate and behind it its part of the rest.
// torch_dist calls a layer norm after the matrix behind it, as TransformerEngine's modules have it; a model of local modules
// has it as a module of its own.
// Errors: kInvalidArgument names the tensor: experts, names that Megatron's GPT does not have, lengths that do not divide.
// Threads: pure. Source: megatron/core/models/gpt, transformer, tensor_parallel (0.16.1); the order is that of its modules'
// named_parameters.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "replica/formats/format.h"
#include "replica/formats/zip/zip.h"

namespace kintsugi::formats::megatron {

// A rank's tensor: boxes of tensors of the content, one behind the other.
struct RankTensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<zip::Layer::PaddedBox> boxes;
};

struct RankParameter {
  std::string name;
  RankTensor weight;
  std::optional<RankTensor> master;          // where it is a tensor of its own
  std::map<std::string, RankTensor> states;  // "exp_avg": without those that are one number
  bool is_shared_embedding = false;          // of a pipeline's first and last stage
};

class Shards {
 public:
  // `has_local_modules`: else those of TransformerEngine, or whatever the content says.
  static Result<Shards> Of(const Content& content, const LayOptions& options, bool has_local_modules);

  // In the order of a module's parameters.
  Result<std::vector<RankParameter>> PartOf(int stage, int tensor_rank) const;
  // Tensors that are no rank's: how often a parameter was updated.
  const std::vector<uint32_t>& counts() const { return counts_; }

 private:
  // A parameter, or a state of it, as a whole: one tensor, or the two halves of a gated one.
  struct Part {
    uint32_t tensor = 0;
    std::optional<int64_t> layer;  // of a tensor with all layers in it
  };
  struct Whole {
    std::map<int, Part> halves;  // by number; one that is alone is 0
  };
  enum class Cut { kWhole, kRows, kGatedRows, kColumns };
  struct Place {
    int section = 0;
    int64_t layer = -1;
    int module = 0, leaf = 0;
    std::string name;  // within its layer
    Cut cut = Cut::kWhole;
    auto operator<=>(const Place&) const = default;
  };

  Shards(const Content& content, const LayOptions& options, bool has_local_modules)
      : content_(content), options_(options), has_local_modules_(has_local_modules) {}
  Status Add(uint32_t tensor, const std::string& model, const std::string& state);
  Status AddOne(const std::string& given, int64_t layer, const std::string& state, const Part& part, int half);
  Result<Place> PlaceOf(const std::string& name, int64_t layer) const;
  Status CheckStages();
  int StageOf(const Place& place) const;
  std::string NameIn(const Place& place, int stage) const;
  // Behind the axis of layers.
  Shape ShapeOf(const Part& part) const;
  layout::Box BoxOf(const Part& part, int axis, int64_t low, int64_t high) const;
  Result<RankTensor> CutFor(const Place& place, const Whole& whole, int tensor_rank) const;
  bool IsGated(const Place& place, const Whole& whole) const;

  const Content& content_;
  const LayOptions& options_;
  const bool has_local_modules_;
  std::map<Place, std::map<std::string, Whole>> parameters_;  // by state; "": the weights
  std::vector<uint32_t> counts_;
  int64_t layers_ = 0;
  bool is_tied_ = false;
};

}  // namespace kintsugi::formats::megatron
