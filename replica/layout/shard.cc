#include "replica/layout/shard.h"

#include <limits>

#include "callbacks/state/key.h"

namespace kintsugi::layout {
namespace {

std::string Text(DType dtype) {
  return IsKnown(dtype) ? std::string(DTypeName(dtype)) : "dtype number " + std::to_string(static_cast<int>(dtype));
}

class Checker {
 public:
  explicit Checker(const std::string& key) : key_(key) {}
  LayoutError Error(ErrorCode code, const std::string& what, std::optional<Box> region = std::nullopt) const {
    return {code, key_, {}, region, "tensor '" + PrintableKey(key_) + "': " + what};
  }

 private:
  const std::string& key_;
};

std::optional<LayoutError> CheckData(const ShardSpec& spec, const TensorData& data) {
  const Checker check(spec.key);
  if (data.dtype != spec.dtype)
    return check.Error(ErrorCode::kDType,
                       "the data is " + Text(data.dtype) + ", but the shard says " + Text(spec.dtype));
  if (!spec.flattened_range && data.shape != spec.local_shape)
    return check.Error(ErrorCode::kLocalShape, "the data has shape " + DescribeShape(data.shape) +
                                                   ", but the shard says " + DescribeShape(spec.local_shape));
  const auto count = Product(data.shape);
  if (spec.flattened_range &&
      (data.shape.size() != 1 || data.shape[0] != spec.flattened_range->stop - spec.flattened_range->start))
    return check.Error(ErrorCode::kLocalShape,
                       "the data has shape " + DescribeShape(data.shape) + ", but the flat range " +
                           std::to_string(spec.flattened_range->start) + ".." +
                           std::to_string(spec.flattened_range->stop) + " has one axis of its own length");
  if (data.memory.data == nullptr && data.memory.size_bytes == 0) return std::nullopt;
  const auto bytes = count ? static_cast<uint64_t>(*count) : std::numeric_limits<uint64_t>::max();
  if (data.memory.size_bytes / std::max<uint64_t>(1, DTypeSize(data.dtype)) != bytes ||
      data.memory.size_bytes % std::max<uint64_t>(1, DTypeSize(data.dtype)) != 0)
    return check.Error(ErrorCode::kLocalShape, "memory of " + std::to_string(data.memory.size_bytes) +
                                                   " bytes, but the data has shape " + DescribeShape(data.shape) +
                                                   " of " + Text(data.dtype));
  return std::nullopt;
}

std::optional<LayoutError> CheckDimensions(const ShardSpec& spec) {
  const Checker check(spec.key);
  if (spec.global_shape.size() != spec.global_offset.size())
    return check.Error(ErrorCode::kDimensions, "the global offset " + DescribeShape(spec.global_offset) +
                                                   " and the global shape " + DescribeShape(spec.global_shape) +
                                                   " have different numbers of axes");
  if (spec.prepend_axis_num < 0 ||
      spec.local_shape.size() + static_cast<size_t>(spec.prepend_axis_num) != spec.global_shape.size())
    return check.Error(ErrorCode::kDimensions, "the local shape " + DescribeShape(spec.local_shape) + " with " +
                                                   std::to_string(spec.prepend_axis_num) +
                                                   " prepended axes does not fit the global shape " +
                                                   DescribeShape(spec.global_shape));
  if (spec.global_shape.size() > kAxesMax)
    return check.Error(ErrorCode::kDimensions, "has " + std::to_string(spec.global_shape.size()) +
                                                   " axes; the limit is " + std::to_string(kAxesMax));
  if (!spec.axis_fragmentations.empty() && spec.axis_fragmentations.size() != spec.global_shape.size())
    return check.Error(ErrorCode::kDimensions, "the axis fragmentations " + DescribeShape(spec.axis_fragmentations) +
                                                   " and the global shape " + DescribeShape(spec.global_shape) +
                                                   " have different numbers of axes");
  return std::nullopt;
}

Shape BoxShape(const ShardSpec& spec) {
  Shape shape(static_cast<size_t>(spec.prepend_axis_num), 1);
  shape.insert(shape.end(), spec.local_shape.begin(), spec.local_shape.end());
  return shape;
}

std::optional<LayoutError> CheckAxis(const ShardSpec& spec, size_t axis, int64_t local) {
  const Checker check(spec.key);
  const int64_t global = spec.global_shape[axis], offset = spec.global_offset[axis];
  const std::string place = "axis " + std::to_string(axis) + ": ";
  if (global < 0 || local < 0 || offset < 0)
    return check.Error(ErrorCode::kNegative, place + "offset " + std::to_string(offset) + ", local length " +
                                                 std::to_string(local) + " and global length " +
                                                 std::to_string(global) + " must not be negative");
  if (spec.axis_fragmentations.empty()) return std::nullopt;
  const int64_t fragments = spec.axis_fragmentations[axis];
  if (local != 0 && offset % local != 0)
    return check.Error(ErrorCode::kMisaligned, place + "offset " + std::to_string(offset) +
                                                   " is no multiple of the local length " + std::to_string(local));
  int64_t grid = 0;
  if (fragments < 1 || __builtin_mul_overflow(fragments, local, &grid) || grid != global)
    return check.Error(ErrorCode::kMisaligned, place + std::to_string(fragments) + " fragments of length " +
                                                   std::to_string(local) + " do not make the global length " +
                                                   std::to_string(global));
  return std::nullopt;
}

}  // namespace

bool IsMainReplica(std::span<const int64_t> replica_id) {
  return std::all_of(replica_id.begin(), replica_id.end(), [](int64_t id) { return id == 0; });
}

Result<ShardedTensor, LayoutError> MakeShard(const ShardSpec& spec, const TensorData* data) {
  const Checker check(spec.key);
  if (const Status key = ValidateKey(spec.key); !key.ok()) return check.Error(ErrorCode::kKey, key.message());
  if (!IsKnown(spec.dtype)) return check.Error(ErrorCode::kDType, Text(spec.dtype) + " is unknown");
  if (data)
    if (auto error = CheckData(spec, *data)) return *error;
  if (auto error = CheckDimensions(spec)) return *error;
  const Shape local = BoxShape(spec);
  for (size_t axis = 0; axis < local.size(); ++axis)
    if (auto error = CheckAxis(spec, axis, local[axis])) return *error;

  for (size_t axis = 0; axis < local.size(); ++axis)
    if (local[axis] > spec.global_shape[axis] || spec.global_offset[axis] > spec.global_shape[axis] - local[axis])
      return check.Error(ErrorCode::kOutOfBounds, "axis " + std::to_string(axis) + ": offset " +
                                                      std::to_string(spec.global_offset[axis]) + " + local length " +
                                                      std::to_string(local[axis]) + " is past the global length " +
                                                      std::to_string(spec.global_shape[axis]));
  const Box box = BoxAt(spec.global_offset, local);
  const auto whole = Product(spec.global_shape);
  if (!whole || static_cast<uint64_t>(*whole) > std::numeric_limits<int64_t>::max() / DTypeSize(spec.dtype))
    return check.Error(ErrorCode::kTooLarge,
                       "global shape " + DescribeShape(spec.global_shape) + " of " + Text(spec.dtype) +
                           " has more bytes than 63 bits can count",
                       box);
  const int64_t volume = *Volume(box);
  if (const auto& flat = spec.flattened_range)
    if (flat->start < 0 || flat->stop < flat->start || flat->stop > volume)
      return check.Error(ErrorCode::kFlatRange,
                         "flat range " + std::to_string(flat->start) + ".." + std::to_string(flat->stop) +
                             " is not within the " + std::to_string(volume) + " elements of its box",
                         box);
  ShardedTensor shard;
  shard.key = spec.key;
  shard.dtype = spec.dtype;
  shard.global_shape = spec.global_shape;
  shard.local_shape = local;
  shard.global_offset = spec.global_offset;
  shard.flattened_range = spec.flattened_range;
  shard.replica_id = spec.replica_id;
  shard.axis_fragmentations = spec.axis_fragmentations;
  shard.prepend_axis_num = spec.prepend_axis_num;
  shard.allow_shape_mismatch = spec.allow_shape_mismatch;
  if (data) shard.memory = data->memory;
  return shard;
}

Result<ShardedTensor, LayoutError> FromRankOffsets(const std::string& key, const TensorData& data,
                                                   std::span<const RankOffset> offsets, const ShardOptions& options) {
  const Checker check(key);
  if (options.prepend_axis_num < 0 || options.prepend_axis_num > kAxesMax)
    return check.Error(ErrorCode::kDimensions, std::to_string(options.prepend_axis_num) +
                                                   " prepended axes; the limit is " + std::to_string(kAxesMax));
  ShardSpec spec{.key = key,
                 .dtype = data.dtype,
                 .local_shape = data.shape,
                 .prepend_axis_num = options.prepend_axis_num,
                 .replica_id = options.replica_id,
                 .allow_shape_mismatch = options.allow_shape_mismatch};
  spec.global_shape = BoxShape(spec);
  spec.global_offset.assign(spec.global_shape.size(), 0);
  spec.axis_fragmentations.assign(spec.global_shape.size(), 1);
  std::vector<bool> named(spec.global_shape.size());
  for (const auto& [axis, offset, fragments] : offsets) {
    const std::string triple =
        "rank offset (" + std::to_string(axis) + ", " + std::to_string(offset) + ", " + std::to_string(fragments) + ")";
    if (axis < 0 || static_cast<size_t>(axis) >= spec.global_shape.size())
      return check.Error(ErrorCode::kAxis, triple + " names an axis that is not there: there are " +
                                               std::to_string(spec.global_shape.size()));
    if (named[axis])
      return check.Error(ErrorCode::kAxisTwice, triple + " names axis " + std::to_string(axis) +
                                                    " a second time, after (" + std::to_string(axis) + ", " +
                                                    std::to_string(spec.global_offset[axis]) + " elements in, " +
                                                    std::to_string(spec.axis_fragmentations[axis]) + ")");
    if (offset < 0 || fragments < 1 || offset >= fragments)
      return check.Error(ErrorCode::kRankOffset, triple + " is invalid: 0 <= offset < fragments must hold");
    named[axis] = true;
    const int64_t unit = spec.global_shape[axis];
    if (__builtin_mul_overflow(unit, fragments, &spec.global_shape[axis]))
      return check.Error(ErrorCode::kTooLarge, triple + " of length " + std::to_string(unit) +
                                                   " makes an axis longer than 63 bits can count");
    spec.global_offset[axis] = offset * unit;
    spec.axis_fragmentations[axis] = fragments;
  }
  return MakeShard(spec, &data);
}

Result<ShardedTensor, LayoutError> FromShardWeight(const std::string& key, const TensorData& data,
                                                   std::optional<int> axis, int64_t group_rank, int64_t group_size,
                                                   const ShardOptions& options) {
  if (!axis) return FromRankOffsets(key, data, {}, options);
  const Checker check(key);
  if (*axis < 0 || static_cast<size_t>(*axis) >= data.shape.size())
    return check.Error(ErrorCode::kAxis, "shard axis " + std::to_string(*axis) + " is not there: shape " +
                                             DescribeShape(data.shape) + " has axes 0 to " +
                                             std::to_string(static_cast<int>(data.shape.size()) - 1));
  const RankOffset offset{*axis + options.prepend_axis_num, group_rank, group_size};
  return FromRankOffsets(key, data, {&offset, 1}, options);
}

Shape OwnShape(const ShardedTensor& shard) {
  return {shard.local_shape.begin() + shard.prepend_axis_num, shard.local_shape.end()};
}

Shape GridCoordinates(const ShardedTensor& shard) {
  Shape coordinates = shard.global_offset;
  for (size_t axis = static_cast<size_t>(shard.prepend_axis_num); axis < coordinates.size(); ++axis)
    coordinates[axis] = shard.local_shape[axis] == 0 ? 0 : shard.global_offset[axis] / shard.local_shape[axis];
  return coordinates;
}

}  // namespace kintsugi::layout
