// MetadataBuilder: from descriptors in any order to canonical metadata.
//
// What: one rank describes what it holds, the lists are merged over all ranks (merge.h). A builder takes shards of
// several ranks too, for a planner that computes another layout, and in tests. A descriptor that is wrong in itself
// does not fail here: the rank alone would stop and the others would wait for it. It becomes a refusal in the
// metadata, which Validate reports on every rank.
// Threads: one thread.
// Errors: none; see above.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/layout/metadata.h"

namespace kintsugi::layout {

class KINTSUGI_EXPORT MetadataBuilder {
 public:
  // A rank whose list is in here, be it empty. Once for each rank. Ranks out of [0, kRanksMax) are refused.
  void AddRank(int32_t rank);

  void AddTensor(int32_t rank, const ShardedTensor& tensor);
  void AddObject(int32_t rank, const ShardedObject& object);
  // What failed where the rank made a descriptor.
  void AddRefusal(int32_t rank, LayoutError error);

  // For many shards: a key and a replica id get numbers once, a shard is then a few numbers. `lo` and `hi` have as many
  // entries as the key has axes. REQUIRES: 0 <= lo <= hi; a flat range with 0 <= start <= stop, or kNotFlat; a valid
  // name.
  uint32_t AddKey(const KeyMeta& key);
  uint32_t AddReplicaId(std::span<const int64_t> id);
  void AddShard(int32_t rank, uint32_t key, const int64_t* lo, const int64_t* hi, FlatRange flat, uint32_t replica);

  // Leaves the builder empty.
  Metadata Build();

 private:
  struct Entry {
    uint64_t coordinates = 0;
    FlatRange flat;
    uint32_t key = 0;
    Holder holder;
  };
  void Add(int32_t rank, KeyMeta key, const Shape& offset, const Shape& shape, FlatRange flat,
           std::span<const int64_t> replica_id);
  std::vector<uint32_t> SortKeys() const;
  std::vector<uint32_t> SortReplicaIds();
  std::vector<Entry> ByKey(const std::vector<uint32_t>& key_place) const;

  std::vector<int32_t> ranks_;
  std::vector<KeyMeta> keys_;
  std::unordered_multimap<std::string, uint32_t> key_numbers_;
  std::vector<std::vector<int64_t>> replica_ids_;
  std::unordered_map<std::string, uint32_t> replica_numbers_;  // by their bytes
  std::vector<int64_t> coordinates_;
  std::vector<Entry> entries_;
  std::vector<LayoutError> refusals_;
};

}  // namespace kintsugi::layout
