// ParameterTable: the names, shapes and places of all parameters that one tensor-parallel rank holds.
//
// All parameters lie in one flat buffer; gradients lie in an equal one. Under tensor parallelism (Shoeybi et al. 2019)
// the first matrix of each pair is split by rows (its outputs), the second by columns (its inputs); embeddings, layer
// norms, output biases and the head are held whole by every rank. The rows of the query-key-value matrix are ordered
// head by head, so that a split by rows is a split by heads.
//
// Threads: immutable after construction.
// Units: offsets and counts in elements.
// Invariants: every parameter and every shard range starts on a 64-byte boundary; gaps between parameters and the
// padding at the end belong to no parameter and stay zero; all shard ranges are equally long and cover the buffer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "integrations/examples/byte_lm/config.h"

namespace kintsugi::byte_lm {

enum class ParameterKind { kEmbedding, kMatrix, kResidualMatrix, kHead, kNormWeight, kBias };

struct Parameter {
  std::string name;
  ParameterKind kind = ParameterKind::kMatrix;
  Shape global_shape;
  Shape local_shape;    // differs from global_shape on the split axis only
  Shape global_offset;  // of the local box
  bool replicated = true;  // every tensor-parallel rank holds the same values
  size_t offset = 0;       // in the flat buffer
  size_t count = 0;        // of local elements
};

// Half-open range of the flat buffer.
struct FlatSpan {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};

// Places in ParameterTable::parameters() of what one block needs.
struct BlockParameters {
  size_t attention_norm_weight, attention_norm_bias, qkv_weight, qkv_bias, projection_weight, projection_bias;
  size_t mlp_norm_weight, mlp_norm_bias, up_weight, up_bias, down_weight, down_bias;
};

class ParameterTable {
 public:
  // REQUIRES: Validate(config, tp_size) is ok; shards >= 1.
  ParameterTable(const ModelConfig& config, int tp_rank, int tp_size, int shards);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& operator[](size_t index) const { return parameters_[index]; }
  // Length of the flat buffer, padding included.
  size_t flat_size() const { return flat_size_; }
  int shards() const { return shards_; }
  int tp_rank() const { return tp_rank_; }
  int tp_size() const { return tp_size_; }
  FlatSpan ShardRange(int shard) const;

  size_t token_embedding = 0, position_embedding = 0, final_norm_weight = 0, final_norm_bias = 0, head_weight = 0;
  std::vector<BlockParameters> blocks;

 private:
  static constexpr int kWhole = -1;  // split axis of a replicated parameter
  size_t Add(std::string name, ParameterKind kind, Shape shape, int split_axis);
  BlockParameters AddBlock(const ModelConfig& config, int64_t layer);

  int tp_rank_, tp_size_, shards_;
  std::vector<Parameter> parameters_;
  size_t flat_size_ = 0;
};

}  // namespace kintsugi::byte_lm
