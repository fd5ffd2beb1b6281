#include "replica/save/arrived_sums.h"

#include <iterator>

#include "runtime/base/check.h"

namespace kintsugi::checkpoint {

ArrivedSums::ArrivedSums(const StateRegistry& registry) {
  for (const auto& [key, tensor] : registry.tensors()) {
    if (tensor.memory.size_bytes == 0 || tensor.memory.kind == MemoryKind::kDevice) continue;
    Shard& shard = shards_.emplace_back(tensor);
    by_address_.emplace(reinterpret_cast<uintptr_t>(tensor.memory.data), &shard);
  }
}

void ArrivedSums::Add(std::span<const uint8_t> memory) {
  if (memory.empty()) return;
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  const auto next = by_address_.upper_bound(address);
  if (next == by_address_.begin()) return;
  const auto& [begin, shard] = *std::prev(next);
  const uint64_t at = address - begin, size = shard->tensor->memory.size_bytes;
  if (at >= size) return;
  KINTSUGI_CHECK(memory.size() <= size - at, "what arrived goes over a tensor's end");
  shard->sum.fetch_add(shard->place.SumAt(at, memory), std::memory_order_relaxed);
  shard->bytes.fetch_add(memory.size(), std::memory_order_relaxed);
}

std::map<std::string, uint64_t> ArrivedSums::Whole() const {
  std::map<std::string, uint64_t> sums;
  for (const Shard& shard : shards_)
    if (shard.bytes == shard.tensor->memory.size_bytes) sums.emplace(shard.tensor->key, shard.sum);
  return sums;
}

}  // namespace kintsugi::checkpoint
