// SpecSide: one side of a spec on its way into metadata: its tensors, then its shards (private to this folder).
//
// What: the meaning of what stands in a spec, whichever reader took it from the text.
// Threads: one.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "replica/layout/builder.h"
#include "replica/layout/shard.h"
#include "runtime/base/json.h"

namespace kintsugi::reshard {

// One axis more than a box can have, so that the library itself refuses it with its own code.
inline constexpr size_t kAxesRead = layout::kAxesMax + 1;

// A shard as it is written. REQUIRES: a rank from 0 to kRanksMax - 1, lists of at most kAxesRead numbers, a replica id
// of at most kReplicaIdLengthMax.
struct ShardEntry {
  int32_t rank = 0;
  Shape offset, shape;
  std::optional<FlatRange> flat;
  std::vector<int64_t> replica_id = {0};
  // As a trainer cuts it, in place of `offset` and `flat`.
  std::optional<std::vector<layout::RankOffset>> rank_offsets;
  int prepend_axis_num = 0;
};

// Of a rank offset. An axis of more bits than an int is none in any case.
inline int AxisOf(int64_t number) { return static_cast<int>(std::clamp<int64_t>(number, -1, INT32_MAX)); }

class SpecSide {
 public:
  struct Tensor {
    DType dtype = DType::kFloat32;
    Shape global_shape;
    bool allow_shape_mismatch = false;
    std::optional<uint32_t> number;  // in the builder, where it can be a tensor at all
  };
  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Tensors = std::unordered_map<std::string, Tensor, TextHash, std::equal_to<>>;

  // "source", with "source_tensors"; the same of the target.
  static SpecSide Source() { return SpecSide("source", "source_tensors"); }
  static SpecSide Target() { return SpecSide("target", "target_tensors"); }

  const char* name() const { return name_; }
  // Takes the tensors from the document, once. Before any shard.
  Status Open(const JsonField& root);

  const Tensors::value_type* Find(std::string_view key) const {
    const auto found = tensors_->find(key);
    return found == tensors_->end() ? nullptr : &*found;
  }
  // A shard of a tensor that was found here.
  // Errors: what is wrong with it, without its place.
  Status Add(const Tensors::value_type& tensor, const ShardEntry& shard);
  // Leaves the side without shards.
  layout::Metadata Build() { return builder_.Build(); }

 private:
  SpecSide(const char* name, const char* own_tensors) : name_(name), own_tensors_(own_tensors) {}
  // False: the shard does not lie within its tensor.
  bool AddInside(const Tensor& tensor, const ShardEntry& shard);
  Status AddCut(const Tensors::value_type& tensor, const ShardEntry& shard);

  const char* const name_;
  const char* const own_tensors_;
  std::optional<Tensors> tensors_;
  std::unordered_set<int32_t> ranks_;  // that are in the builder
  layout::MetadataBuilder builder_;
};

// Host of each rank; none where the document says nothing.
Result<std::vector<int32_t>> ReadHosts(const JsonField& root);

}  // namespace kintsugi::reshard
