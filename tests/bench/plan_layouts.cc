#include "tests/bench/plan_layouts.h"

#include <array>
#include <cmath>

#include "replica/layout/builder.h"

namespace kintsugi::bench {
namespace {

using layout::KeyMeta;
using layout::kNotFlat;
using layout::MetadataBuilder;
using layout::Point;

constexpr int64_t kRanks = 1024;

KeyMeta Key(const std::string& name, DType dtype, std::span<const int64_t> shape) {
  KeyMeta key;
  key.name = name;
  key.dtype = dtype;
  key.axes = static_cast<uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), key.global_shape.begin());
  return key;
}

// Pieces per axis whose product is about `pieces`.
Shape Fragments(Cut cut, uint64_t pieces, bool is_source) {
  const int axes = cut == Cut::kLine ? 1 : cut == Cut::kPlane ? 2 : cut == Cut::kSpace ? 3 : 1;
  Shape fragments(static_cast<size_t>(axes), std::llround(std::pow(static_cast<double>(pieces), 1.0 / axes)));
  // Uneven against one another on the first axis.
  if (is_source) fragments[0] = std::max<int64_t>(1, fragments[0] * 3 / 4);
  return fragments;
}

void AddTensor(MetadataBuilder* builder, const std::string& name, Cut cut, const Shape& fragments, uint32_t replica) {
  if (cut == Cut::kFlat) {
    const Shape shape = {4096, 4096};
    const uint32_t key = builder->AddKey(Key(name, DType::kFloat32, shape));
    const Point lo{}, hi = {4096, 4096};
    const int64_t volume = 4096 * 4096, count = fragments[0];
    for (int64_t i = 0; i < count; ++i)
      builder->AddShard(static_cast<int32_t>(i * kRanks / count), key, lo.data(), hi.data(),
                        {volume * i / count, volume * (i + 1) / count}, replica);
    return;
  }
  int64_t total = 1;
  for (int64_t count : fragments) total *= count;
  const Shape whole(fragments.size(), 1 << 20);
  const uint32_t key = builder->AddKey(Key(name, DType::kFloat32, whole));
  for (int64_t i = 0; i < total; ++i) {
    Point lo{}, hi{};
    int64_t rest = i;
    for (size_t axis = whole.size(); axis-- > 0;) {
      const int64_t at = rest % fragments[axis];
      rest /= fragments[axis];
      lo[axis] = whole[axis] * at / fragments[axis];
      hi[axis] = whole[axis] * (at + 1) / fragments[axis];
    }
    builder->AddShard(static_cast<int32_t>(i * kRanks / total), key, lo.data(), hi.data(), kNotFlat, replica);
  }
}

struct Weight {
  std::string name;
  Shape shape;
  int cut_axis;  // tensor parallel; -1: whole on each rank
};

std::vector<Weight> LlamaLayer(const std::string& prefix) {
  const int64_t hidden = 16384, inner = 53248, heads = 16384, key_value = 1024;
  return {{prefix + "attention.q.weight", {heads, hidden}, 0},
          {prefix + "attention.k.weight", {key_value, hidden}, 0},
          {prefix + "attention.v.weight", {key_value, hidden}, 0},
          {prefix + "attention.o.weight", {hidden, heads}, 1},
          {prefix + "mlp.gate.weight", {inner, hidden}, 0},
          {prefix + "mlp.up.weight", {inner, hidden}, 0},
          {prefix + "mlp.down.weight", {hidden, inner}, 1},
          {prefix + "attention.norm.weight", {hidden}, -1},
          {prefix + "mlp.norm.weight", {hidden}, -1}};
}

// A parameter on all ranks of its pipeline stage, and its states, cut over the data parallel ranks.
void AddWeight(MetadataBuilder* builder, const Weight& weight, const Parallel& parallel, int stage) {
  const std::array<std::string, 3> states = {"master", "exp_avg", "exp_avg_sq"};
  const uint32_t parameter = builder->AddKey(Key(weight.name, DType::kBFloat16, weight.shape));
  std::array<uint32_t, 3> state_keys{};
  for (size_t i = 0; i < states.size(); ++i)
    state_keys[i] =
        builder->AddKey(Key("optimizer.state." + states[i] + "." + weight.name, DType::kFloat32, weight.shape));
  for (int tensor = 0; tensor < parallel.tensor; ++tensor) {
    Point lo{}, hi{};
    int64_t volume = 1;
    for (size_t axis = 0; axis < weight.shape.size(); ++axis) {
      const bool is_cut = static_cast<int>(axis) == weight.cut_axis;
      const int64_t length = weight.shape[axis] / (is_cut ? parallel.tensor : 1);
      lo[axis] = is_cut ? tensor * length : 0;
      hi[axis] = lo[axis] + length;
      volume *= length;
    }
    for (int data = 0; data < parallel.data; ++data) {
      const int rank = (stage * parallel.data + data) * parallel.tensor + tensor;
      // Whole weights are copies over the tensor parallel ranks too.
      const std::array<int64_t, 2> copy = {weight.cut_axis < 0 ? tensor : 0, data};
      builder->AddShard(rank, parameter, lo.data(), hi.data(), kNotFlat, builder->AddReplicaId(copy));
      const FlatRange part = {volume * data / parallel.data, volume * (data + 1) / parallel.data};
      const std::array<int64_t, 1> state_copy = {copy[0]};
      for (uint32_t key : state_keys)
        builder->AddShard(rank, key, lo.data(), hi.data(), part, builder->AddReplicaId(state_copy));
    }
  }
}

}  // namespace

layout::Metadata Tensors(Cut cut, uint64_t shards, bool is_source) {
  MetadataBuilder builder;
  const std::array<int64_t, 1> main = {0};
  const uint32_t replica = builder.AddReplicaId(main);
  const uint64_t tensors = std::max<uint64_t>(1, shards / kRanks);
  for (uint64_t i = 0; i < tensors; ++i)
    AddTensor(&builder, "layers." + std::to_string(i) + ".weight", cut, Fragments(cut, kRanks, is_source), replica);
  return builder.Build();
}

layout::Metadata OneTensor(Cut cut, uint64_t shards, bool is_source) {
  MetadataBuilder builder;
  const std::array<int64_t, 1> main = {0};
  const uint32_t replica = builder.AddReplicaId(main);
  AddTensor(&builder, "weight", cut, Fragments(cut, shards, is_source), replica);
  return builder.Build();
}

layout::Metadata Llama3_405B(const Parallel& parallel) {
  constexpr int kLayers = 126;
  MetadataBuilder builder;
  for (int rank = 0; rank < parallel.ranks(); ++rank) builder.AddRank(rank);
  const int last = parallel.pipeline - 1;
  AddWeight(&builder, {"embedding.weight", {128256, 16384}, 0}, parallel, 0);
  for (int layer = 0; layer < kLayers; ++layer)
    for (const Weight& weight : LlamaLayer("layers." + std::to_string(layer) + "."))
      AddWeight(&builder, weight, parallel, layer * parallel.pipeline / kLayers);
  AddWeight(&builder, {"norm.weight", {16384}, -1}, parallel, last);
  AddWeight(&builder, {"output.weight", {128256, 16384}, 0}, parallel, last);
  return builder.Build();
}

}  // namespace kintsugi::bench
