#include "replica/save/tensor_sums.h"

#include <utility>

#include "replica/save/manifest.h"
#include "runtime/base/check.h"

namespace kintsugi::checkpoint {

void SumGatherer::Add(const ShardedTensor& shard, std::optional<uint64_t> sum) {
  const auto [found, is_first] = tensors_.try_emplace(shard.key);
  Tensor& tensor = found->second;
  if (is_first) {
    tensor.dtype = shard.dtype;
    tensor.shape = shard.global_shape;
  }
  if (tensor.dtype != shard.dtype || tensor.shape != shard.global_shape) tensor.is_known = false;
  const int64_t elements = shard.ElementCount();
  if (elements == 0) return;
  if (!sum) tensor.is_known = false;
  const FlatRange flat = shard.flattened_range.value_or(FlatRange{0, elements});
  KINTSUGI_CHECK(flat.stop - flat.start == elements, "a shard's elements are its flat range's");
  const auto [copy, is_new] =
      tensor.sum_of.try_emplace({shard.global_offset, shard.local_shape, flat.start, flat.stop}, sum.value_or(0));
  if (is_new)
    tensor.elements += elements;
  else if (sum != copy->second)
    tensor.is_known = false, has_unlike_copies_ = true;
}

std::vector<TensorSum> SumGatherer::Sums() const {
  std::vector<TensorSum> sums;
  uint64_t text_bytes = 0;
  for (const auto& [key, tensor] : tensors_) {
    ShardedTensor whole;
    whole.local_shape = tensor.shape;
    if (!tensor.is_known || tensor.elements != whole.ElementCount()) continue;
    TensorSum sum{key, tensor.dtype, tensor.shape, 0};
    for (const auto& [region, value] : tensor.sum_of) sum.sum += value;
    // The key with every character escaped, the names of the fields, digits.
    text_bytes += 2 * key.size() + 96 + 20 * tensor.shape.size();
    if (text_bytes > kTensorSumsBytesMax) return {};
    sums.push_back(std::move(sum));
  }
  return sums;
}

std::vector<TensorSum> TensorSumsOf(const std::vector<const Part*>& parts) {
  SumGatherer sums;
  for (const Part* part : parts)
    for (const StoredShard& shard : part->shards)
      for (const StoredTensor& stored : shard.tensors) sums.Add(stored.tensor, stored.sum);
  return sums.Sums();
}

}  // namespace kintsugi::checkpoint
