#include "integrations/examples/byte_lm/parameter_table.h"

#include <utility>

#include "integrations/examples/byte_lm/aligned_buffer.h"
#include "runtime/base/check.h"

namespace kintsugi::byte_lm {
namespace {

constexpr size_t kAlignmentElements = kAlignmentBytes / sizeof(float);

size_t RoundUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

ParameterTable::ParameterTable(const ModelConfig& config, int tp_rank, int tp_size, int shards)
    : tp_rank_(tp_rank), tp_size_(tp_size), shards_(shards) {
  KINTSUGI_CHECK(shards >= 1 && tp_rank >= 0 && tp_rank < tp_size, "byte_lm: a rank outside its own layout");
  token_embedding = Add("embedding.token", ParameterKind::kEmbedding, {config.vocabulary, config.width}, kWhole);
  position_embedding = Add("embedding.position", ParameterKind::kEmbedding, {config.context, config.width}, kWhole);
  for (int64_t layer = 0; layer < config.layers; ++layer) blocks.push_back(AddBlock(config, layer));
  final_norm_weight = Add("final_norm.weight", ParameterKind::kNormWeight, {config.width}, kWhole);
  final_norm_bias = Add("final_norm.bias", ParameterKind::kBias, {config.width}, kWhole);
  head_weight = Add("head.weight", ParameterKind::kHead, {config.vocabulary, config.width}, kWhole);
  flat_size_ = RoundUp(flat_size_, kAlignmentElements * static_cast<size_t>(shards_));
}

BlockParameters ParameterTable::AddBlock(const ModelConfig& config, int64_t layer) {
  const std::string block = "layers." + std::to_string(layer) + ".";
  const int64_t width = config.width, hidden = config.Hidden();
  BlockParameters p{};
  p.attention_norm_weight = Add(block + "attention_norm.weight", ParameterKind::kNormWeight, {width}, kWhole);
  p.attention_norm_bias = Add(block + "attention_norm.bias", ParameterKind::kBias, {width}, kWhole);
  p.qkv_weight = Add(block + "attention.qkv.weight", ParameterKind::kMatrix, {3 * width, width}, 0);
  p.qkv_bias = Add(block + "attention.qkv.bias", ParameterKind::kBias, {3 * width}, 0);
  p.projection_weight =
      Add(block + "attention.projection.weight", ParameterKind::kResidualMatrix, {width, width}, 1);
  p.projection_bias = Add(block + "attention.projection.bias", ParameterKind::kBias, {width}, kWhole);
  p.mlp_norm_weight = Add(block + "mlp_norm.weight", ParameterKind::kNormWeight, {width}, kWhole);
  p.mlp_norm_bias = Add(block + "mlp_norm.bias", ParameterKind::kBias, {width}, kWhole);
  p.up_weight = Add(block + "mlp.up.weight", ParameterKind::kMatrix, {hidden, width}, 0);
  p.up_bias = Add(block + "mlp.up.bias", ParameterKind::kBias, {hidden}, 0);
  p.down_weight = Add(block + "mlp.down.weight", ParameterKind::kResidualMatrix, {width, hidden}, 1);
  p.down_bias = Add(block + "mlp.down.bias", ParameterKind::kBias, {width}, kWhole);
  return p;
}

size_t ParameterTable::Add(std::string name, ParameterKind kind, Shape shape, int split_axis) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.kind = kind;
  parameter.global_shape = parameter.local_shape = shape;
  parameter.global_offset.assign(shape.size(), 0);
  parameter.replicated = split_axis == kWhole || tp_size_ == 1;
  if (!parameter.replicated) {
    const size_t axis = static_cast<size_t>(split_axis);
    parameter.local_shape[axis] /= tp_size_;
    parameter.global_offset[axis] = parameter.local_shape[axis] * tp_rank_;
  }
  parameter.count = 1;
  for (int64_t extent : parameter.local_shape) parameter.count *= static_cast<size_t>(extent);
  parameter.offset = flat_size_;
  flat_size_ = RoundUp(flat_size_ + parameter.count, kAlignmentElements);
  parameters_.push_back(std::move(parameter));
  return parameters_.size() - 1;
}

FlatSpan ParameterTable::ShardRange(int shard) const {
  KINTSUGI_CHECK(shard >= 0 && shard < shards_, "byte_lm: no such shard");
  const size_t each = flat_size_ / static_cast<size_t>(shards_);
  return {each * static_cast<size_t>(shard), each * (static_cast<size_t>(shard) + 1)};
}

}  // namespace kintsugi::byte_lm
