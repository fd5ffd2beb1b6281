// ArrivedSums: what a rank's shards add to the sums of their tensors (logical_sum.h), taken part by part while the parts
// arrive in registered memory and still lie in the near cache.
//
// What: a reader says which memory it has just filled; whose it is, and what place that is in the global tensor, says
// the registration alone, never the reader. A shard has a sum here when as many bytes have come as it has: that each
// came once, the reader's own bookkeeping must prove. What came in other ways (through a device, from another rank) has
// none, and is summed up from memory. A change of memory after its arrival is not seen.
// Threads: Add from any, of memory that nobody writes meanwhile.
// Ownership: the registry outlives it.
// Units: bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "callbacks/state/registry.h"
#include "replica/save/logical_sum.h"

namespace kintsugi::checkpoint {

// Is told of memory that was filled, part by part.
using Arrived = std::function<void(std::span<const uint8_t> memory)>;

class KINTSUGI_EXPORT ArrivedSums {
 public:
  explicit ArrivedSums(const StateRegistry& registry);
  ArrivedSums(const ArrivedSums&) = delete;
  ArrivedSums& operator=(const ArrivedSums&) = delete;

  // Passes over memory that is not registered on the host. REQUIRES: it does not go over a tensor's end.
  void Add(std::span<const uint8_t> memory);
  Arrived Listener() {
    return [this](std::span<const uint8_t> memory) { Add(memory); };
  }
  // By key: shards of which every byte has come.
  std::map<std::string, uint64_t> Whole() const;

 private:
  struct Shard {
    explicit Shard(const ShardedTensor& shard) : tensor(&shard), place(shard) {}
    const ShardedTensor* const tensor;
    const LogicalSum place;
    std::atomic<uint64_t> sum{0}, bytes{0};
  };
  std::deque<Shard> shards_;
  std::map<uintptr_t, Shard*> by_address_;
};

}  // namespace kintsugi::checkpoint
