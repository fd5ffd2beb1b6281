#include "replica/layout/refuse.h"

#include "callbacks/state/key.h"
#include "replica/layout/metadata.h"

namespace kintsugi::layout {
namespace {

class Refuser {
 public:
  Refuser(std::string_view what, const std::string& key) : what_(what), key_(key) {}

  LayoutError Because(ErrorCode code, const std::string& why) const {
    // A key that is none travels in its printable form.
    return {code, PrintableKey(key_), {}, {}, std::string(what_) + " '" + PrintableKey(key_) + "': " + why};
  }

  std::optional<LayoutError> Axes(const Shape& global, const Shape& local, const Shape& offset) const {
    if (global.size() != local.size() || global.size() != offset.size())
      return Because(ErrorCode::kDimensions, "numbers of axes differ: global shape " + DescribeShape(global) +
                                                 ", local shape " + DescribeShape(local) + ", offset " +
                                                 DescribeShape(offset));
    if (global.size() > kAxesMax)
      return Because(ErrorCode::kDimensions,
                     "has " + std::to_string(global.size()) + " axes; the limit is " + std::to_string(kAxesMax));
    for (size_t axis = 0; axis < global.size(); ++axis) {
      // Said only when it is needed: this is asked for every shard.
      const auto values = [&] {
        return "axis " + std::to_string(axis) + ": offset " + std::to_string(offset[axis]) + ", local length " +
               std::to_string(local[axis]) + " and global length " + std::to_string(global[axis]);
      };
      if (global[axis] < 0 || local[axis] < 0 || offset[axis] < 0)
        return Because(ErrorCode::kNegative, values() + " must not be negative");
      if (int64_t end = 0; __builtin_add_overflow(offset[axis], local[axis], &end))
        return Because(ErrorCode::kTooLarge, values() + " end past 63 bits");
    }
    return std::nullopt;
  }

  std::optional<LayoutError> ReplicaId(const std::vector<int64_t>& id) const {
    if (id.size() <= kReplicaIdLengthMax) return std::nullopt;
    return Because(ErrorCode::kDimensions, "a replica id of " + std::to_string(id.size()) + " numbers; the limit is " +
                                               std::to_string(kReplicaIdLengthMax));
  }

 private:
  std::string_view what_;
  const std::string& key_;
};

}  // namespace

std::optional<LayoutError> RefusalOf(const ShardedTensor& t) {
  const Refuser refuse("tensor", t.key);
  if (const Status key = ValidateKey(t.key); !key.ok()) return refuse.Because(ErrorCode::kKey, key.message());
  if (!IsKnown(t.dtype))
    return refuse.Because(ErrorCode::kDType,
                          "dtype number " + std::to_string(static_cast<int>(t.dtype)) + " is unknown");
  if (auto refusal = refuse.Axes(t.global_shape, t.local_shape, t.global_offset)) return refusal;
  if (auto refusal = refuse.ReplicaId(t.replica_id)) return refusal;
  const Shape& fragments = t.axis_fragmentations;
  if (!fragments.empty() && fragments.size() != t.global_shape.size())
    return refuse.Because(ErrorCode::kDimensions, "numbers of axes differ: global shape " +
                                                      DescribeShape(t.global_shape) + ", axis fragmentations " +
                                                      DescribeShape(fragments));
  for (int64_t count : fragments)
    if (count < 1)
      return refuse.Because(ErrorCode::kMisaligned,
                            "axis fragmentations " + DescribeShape(fragments) + " are not all positive");
  if (const auto& flat = t.flattened_range; flat && (flat->start < 0 || flat->stop < flat->start))
    return refuse.Because(ErrorCode::kFlatRange,
                          "flat range " + std::to_string(flat->start) + ".." + std::to_string(flat->stop) + " is none");
  return std::nullopt;
}

std::optional<LayoutError> RefusalOf(const ShardedObject& object) {
  const Refuser refuse("object", object.key);
  if (const Status key = ValidateKey(object.key); !key.ok()) return refuse.Because(ErrorCode::kKey, key.message());
  if (object.grid_shape.size() != object.grid_offset.size())
    return refuse.Because(ErrorCode::kDimensions, "numbers of axes differ: grid shape " +
                                                      DescribeShape(object.grid_shape) + ", grid offset " +
                                                      DescribeShape(object.grid_offset));
  if (auto refusal = refuse.Axes(object.grid_shape, Shape(object.grid_shape.size(), 1), object.grid_offset))
    return refusal;
  return refuse.ReplicaId(object.replica_id);
}

}  // namespace kintsugi::layout
