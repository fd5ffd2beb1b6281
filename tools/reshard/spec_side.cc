#include "tools/reshard/spec_side.h"

#include "callbacks/state/key.h"

namespace kintsugi::reshard {
namespace {

Result<SpecSide::Tensors> ReadSideTensors(const JsonField& list) {
  SpecSide::Tensors tensors;
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> fields, list.List());
  for (const JsonField& field : fields) {
    KINTSUGI_RETURN_IF_ERROR(field.CheckMembers({"key", "dtype", "global_shape", "allow_shape_mismatch"}));
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField key, field.Get("key"));
    KINTSUGI_ASSIGN_OR_RETURN(const std::string_view name, key.Text());
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField dtype, field.Get("dtype"));
    KINTSUGI_ASSIGN_OR_RETURN(const std::string_view type, dtype.Text());
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField shape, field.Get("global_shape"));
    SpecSide::Tensor tensor;
    KINTSUGI_ASSIGN_OR_RETURN(tensor.global_shape, shape.Integers(kAxesRead));
    const auto known = DTypeFromName(type);
    if (!known) return dtype.Fail("is '" + std::string(type.substr(0, 40)) + "', which is no dtype; try float32 or bfloat16");
    tensor.dtype = *known;
    KINTSUGI_RETURN_IF_ERROR(field.ReadIfAny("allow_shape_mismatch", &tensor.allow_shape_mismatch));
    if (!tensors.emplace(name, std::move(tensor)).second) return key.Fail("is there twice");
  }
  return tensors;
}

layout::KeyMeta KeyOf(const SpecSide::Tensors::value_type& tensor) {
  const auto& [name, what] = tensor;
  layout::KeyMeta key;
  key.name = name;
  key.dtype = what.dtype;
  key.axes = static_cast<uint8_t>(what.global_shape.size());
  key.allow_shape_mismatch = what.allow_shape_mismatch;
  std::copy(what.global_shape.begin(), what.global_shape.end(), key.global_shape.begin());
  return key;
}

}  // namespace

Status SpecSide::Open(const JsonField& root) {
  const bool is_own = root.Find(own_tensors_).has_value();
  if (is_own && root.Find("tensors")) return root.Fail(std::string("has both 'tensors' and '") + own_tensors_ + "'");
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField list, root.Get(is_own ? own_tensors_ : "tensors"));
  KINTSUGI_ASSIGN_OR_RETURN(tensors_, ReadSideTensors(list));
  for (auto& tensor : *tensors_)
    if (ValidateKey(tensor.first).ok() && tensor.second.global_shape.size() <= layout::kAxesMax)
      tensor.second.number = builder_.AddKey(KeyOf(tensor));
  return Status::Ok();
}

Status SpecSide::Add(const Tensors::value_type& tensor, const ShardEntry& shard) {
  if (ranks_.insert(shard.rank).second) builder_.AddRank(shard.rank);
  if (shard.rank_offsets) return AddCut(tensor, shard);
  const auto& [key, what] = tensor;
  if (AddInside(what, shard)) return Status::Ok();
  ShardedTensor piece;
  piece.key = key;
  piece.dtype = what.dtype;
  piece.allow_shape_mismatch = what.allow_shape_mismatch;
  piece.global_shape = what.global_shape;
  piece.global_offset = shard.offset;
  piece.local_shape = shard.shape;
  piece.flattened_range = shard.flat;
  piece.replica_id = shard.replica_id;
  builder_.AddTensor(shard.rank, piece);
  return Status::Ok();
}

// Nearly all are such, and need none of the library's verdicts on what metadata cannot hold.
bool SpecSide::AddInside(const Tensor& tensor, const ShardEntry& shard) {
  const size_t axes = tensor.global_shape.size();
  if (!tensor.number || shard.offset.size() != axes || shard.shape.size() != axes) return false;
  if (shard.flat && (shard.flat->start < 0 || shard.flat->stop < shard.flat->start)) return false;
  layout::Point end{};
  for (size_t axis = 0; axis < axes; ++axis) {
    const int64_t offset = shard.offset[axis], length = shard.shape[axis], whole = tensor.global_shape[axis];
    if (offset < 0 || length < 0 || length > whole || offset > whole - length) return false;
    end[axis] = offset + length;
  }
  builder_.AddShard(shard.rank, *tensor.number, shard.offset.data(), end.data(), shard.flat.value_or(layout::kNotFlat),
                    builder_.AddReplicaId(shard.replica_id));
  return true;
}

// The box follows from the cut.
Status SpecSide::AddCut(const Tensors::value_type& tensor, const ShardEntry& shard) {
  const auto& [key, what] = tensor;
  const layout::TensorData data{.dtype = what.dtype, .shape = shard.shape};
  const auto made = layout::FromRankOffsets(key, data, *shard.rank_offsets,
                                            {shard.replica_id, shard.prepend_axis_num, what.allow_shape_mismatch});
  if (!made.ok()) {
    builder_.AddRefusal(shard.rank, made.error());
    return Status::Ok();
  }
  if (made->global_shape != what.global_shape)
    return {StatusCode::kInvalidArgument, "its rank offsets make the global shape " +
                                              DescribeShape(made->global_shape) + ", but '" + key + "' has " +
                                              DescribeShape(what.global_shape)};
  builder_.AddTensor(shard.rank, *made);
  return Status::Ok();
}

Result<std::vector<int32_t>> ReadHosts(const JsonField& root) {
  std::vector<int32_t> hosts;
  const auto list = root.Find("hosts");
  if (!list) return hosts;
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> fields, list->List());
  for (const JsonField& field : fields) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t host, field.Integer(0, INT32_MAX));
    hosts.push_back(static_cast<int32_t>(host));
  }
  return hosts;
}

}  // namespace kintsugi::reshard
