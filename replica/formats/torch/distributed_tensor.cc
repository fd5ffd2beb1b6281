#include "replica/formats/torch/distributed_tensor.h"

#include <algorithm>
#include <cstring>

#include "replica/layout/box.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::torch {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::Tree;

constexpr size_t kMeshRanksMax = size_t{1} << 17;

// The part of `length` that number `index` of `count` gets, as torch.chunk cuts.
Span ChunkOf(int64_t length, int64_t count, int64_t index) {
  KINTSUGI_CHECK(
      length >= 0 && 0 <= index && index < count,
      "part " + std::to_string(index) + " of " + std::to_string(count) + " of " + std::to_string(length) + " elements");
  const __int128 chunk = length / count + (length % count > 0);
  const auto at = [&](int64_t i) { return static_cast<int64_t>(std::min<__int128>(length, i * chunk)); };
  return {at(index), at(index + 1)};
}

// Ranges behind one another, as if they were one.
using Ranges = std::vector<Span>;
int64_t LengthOf(const Ranges& ranges) {
  int64_t length = 0;
  for (const Span& range : ranges) length += range.end - range.begin;
  return length;
}
void AppendPart(const Ranges& ranges, Span part, Ranges* to) {
  for (const Span& range : ranges) {
    const int64_t length = range.end - range.begin;
    const Span cut{range.begin + std::clamp<int64_t>(part.begin, 0, length),
                   range.begin + std::clamp<int64_t>(part.end, 0, length)};
    part = {part.begin - length, part.end - length};
    if (cut.begin >= cut.end) continue;
    if (!to->empty() && to->back().end == cut.begin)
      to->back().end = cut.end;
    else
      to->push_back(cut);
  }
}

class SpecReader {
 public:
  using Meshes = std::map<NodeId, std::shared_ptr<const Mesh>>;
  SpecReader(const Archive& archive, NodeId id, Meshes* meshes)
      : archive_(archive), tree_(archive.tree), id_(id), meshes_(meshes) {}

  Result<DistributedTensor> Read() const {
    // (function, class, arguments of the function, state).
    const pickle::Items arguments = *tree_.ArgumentsOf(id_, "torch._tensor", "_rebuild_from_type_v2");
    KINTSUGI_CHECK(arguments.size() == 4,
                   "'" + archive_.place + "': a DTensor of " + std::to_string(arguments.size()) + " parts");
    const auto& made = tree_[arguments[2]].items;  // class, type, sizes, strides, offset, ..
    const NodeId local = InState(arguments[3], "_local_tensor"), spec = InState(arguments[3], "_spec");
    const auto shape = made.size() > 2 ? tree_.NumbersOf(made[2]) : std::nullopt;
    if (!shape || local == kNoNode || !tree_.IsOfClass(spec, "DTensorSpec"))
      return Bad("a DTensor without sizes, local tensor or spec");
    KINTSUGI_ASSIGN_OR_RETURN(const auto stored, TensorOf(tree_, local, archive_.place));
    if (!stored) return Bad("a DTensor whose local tensor is none");
    DistributedTensor tensor;
    tensor.local = *stored;
    tensor.shape = *shape;
    KINTSUGI_RETURN_IF_ERROR(CheckMeta(tensor, made[1], Field(spec, "tensor_meta")));
    const NodeId mesh_id = Field(spec, "mesh");
    std::shared_ptr<const Mesh>& mesh = (*meshes_)[mesh_id];
    if (!mesh) {
      KINTSUGI_ASSIGN_OR_RETURN(Mesh read, MeshOf(mesh_id));
      mesh = std::make_shared<const Mesh>(std::move(read));
    }
    tensor.mesh = mesh;
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<AxisPlacement> placements,
                              PlacementsOf(Field(spec, "placements"), mesh->shape.size(), shape->size()));
    const NodeId is_order = Field(spec, "use_strided_shard_as_shard_order");
    const bool is_strided = std::any_of(placements.begin(), placements.end(), [](const AxisPlacement& one) {
      return one.kind == AxisPlacement::Kind::kStridedShard;
    });
    if (is_strided && is_order != kNoNode && tree_[is_order].kind == Kind::kBool && tree_[is_order].number == 0)
      return NotRead("a DTensor whose strided shards are in no order of shards");
    for (size_t axis = 0; axis < shape->size(); ++axis) {
      KINTSUGI_ASSIGN_OR_RETURN(const auto order, OrderOf(Field(spec, "shard_order"), static_cast<int64_t>(axis)));
      const Result<Span> range = RangeOf(static_cast<int64_t>(axis), (*shape)[axis], tensor.local.shape[axis],
                                         placements, mesh->shape, mesh->coordinate, order);
      if (!range.ok()) return Status(range.status().code(), Bad(range.status().message()).message());
      tensor.offset.push_back(range->begin);
    }
    KINTSUGI_CHECK(tensor.offset.size() == tensor.shape.size() && tensor.mesh,
                   "'" + archive_.place + "': a DTensor of " + DescribeShape(tensor.shape) + " at " +
                       DescribeShape(tensor.offset));
    return tensor;
  }

 private:
  Status Bad(const std::string& what) const { return BadNode(tree_, id_, archive_.place, what); }
  Status NotRead(const std::string& what) const { return {StatusCode::kInvalidArgument, Bad(what).message()}; }
  // An attribute of an object that was made and then filled.
  NodeId Field(NodeId object, std::string_view name) const {
    if (object >= tree_.size() || tree_[object].kind != Kind::kCall) return kNoNode;
    return InState(tree_[object].state, name);
  }
  // A state may be a pair: attributes (a parameter has some), and slots.
  NodeId InState(NodeId state, std::string_view name) const {
    if (state >= tree_.size() || tree_[state].kind != Kind::kTuple || tree_[state].items.size() != 2)
      return tree_.Get(state, name);
    const NodeId attribute = tree_.Get(tree_[state].items[0], name);
    return attribute != kNoNode ? attribute : tree_.Get(tree_[state].items[1], name);
  }

  // What stands there twice is the same.
  Status CheckMeta(const DistributedTensor& tensor, NodeId dtype, NodeId meta) const {
    for (const int64_t length : tensor.shape)
      if (length < 0) return Bad("a DTensor with a negative length");
    if (tensor.shape.size() != tensor.local.shape.size())
      return Bad("a DTensor of " + std::to_string(tensor.shape.size()) + " axes whose local tensor has " +
                 std::to_string(tensor.local.shape.size()));
    if (DTypeOfGlobal(tree_, dtype) != tensor.local.dtype)
      return Bad("a DTensor of the type " + pickle::DescribeNode(tree_, dtype) + " whose local tensor is of " +
                 std::string(DTypeName(tensor.local.dtype)));
    if (!tree_.IsOfClass(meta, "TensorMeta")) return Status::Ok();  // it need not say it twice
    const auto& said = tree_[tree_[meta].items[1]].items;
    if (const auto shape = said.empty() ? std::nullopt : tree_.NumbersOf(said[0]); shape != tensor.shape)
      return Bad("a DTensor of " + DescribeShape(tensor.shape) + " whose spec says " +
                 (shape ? DescribeShape(*shape) : "no sizes"));
    return Status::Ok();
  }

  Result<Mesh> MeshOf(NodeId id) const {
    Mesh mesh;
    const NodeId tensor = Field(id, "mesh"), layout = Field(id, "_layout");
    std::vector<std::vector<int64_t>> sizes, strides;  // of each dimension, in places of the whole
    if (tensor != kNoNode) {
      KINTSUGI_ASSIGN_OR_RETURN(mesh.ranks, IntsOf(tensor, &mesh.shape));
      int64_t stride = 1;
      for (size_t i = mesh.shape.size(); i-- > 0; stride *= mesh.shape[i]) {
        sizes.insert(sizes.begin(), {mesh.shape[i]});
        strides.insert(strides.begin(), {stride});
      }
    } else {
      KINTSUGI_RETURN_IF_ERROR(ReadLayout(layout, &sizes, &strides));
      for (const auto& one : sizes) {
        const auto product = layout::Product(one);
        if (!product || *product < 1) return Bad("a mesh whose sizes are none");
        mesh.shape.push_back(*product);
      }
      std::vector<int64_t> shape;
      KINTSUGI_ASSIGN_OR_RETURN(mesh.ranks, IntsOf(Field(id, "_rank_map"), &shape));
    }
    const auto coordinate = tree_.NumbersOf(Field(id, "_coordinate_on_dim"));
    if (!coordinate)
      return NotRead("a DTensor of a rank that is not in its mesh, or of a mesh of a kind that is not read");
    mesh.coordinate = *coordinate;
    if (coordinate->size() != mesh.shape.size()) return Bad("a mesh whose coordinate has another number of dimensions");
    for (size_t i = 0; i < coordinate->size(); ++i)
      if ((*coordinate)[i] < 0 || (*coordinate)[i] >= mesh.shape[i])
        return Bad("a mesh of " + DescribeShape(mesh.shape) + " whose coordinate is " + DescribeShape(*coordinate));
    return FindRank(std::move(mesh), sizes, strides, tree_.IntOf(Field(id, "_rank")));
  }

  // A layout since torch 2.9: sizes and strides of each dimension, which may be a number or several.
  Status ReadLayout(NodeId layout, std::vector<std::vector<int64_t>>* sizes,
                    std::vector<std::vector<int64_t>>* strides) const {
    const auto numbers = [&](NodeId node) {
      if (const auto one = tree_.IntOf(node)) return std::optional(std::vector<int64_t>{*one});
      return tree_.NumbersOf(node);
    };
    const auto add = [&](NodeId size, NodeId stride) {
      auto some = numbers(size), steps = numbers(stride);
      if (!some || !steps || some->size() != steps->size()) return false;
      sizes->push_back(*std::move(some));
      strides->push_back(*std::move(steps));
      return true;
    };
    bool is_read = false;
    if (const NodeId axes = Field(layout, "axes"); axes != kNoNode && tree_[axes].kind == Kind::kTuple) {
      is_read = std::all_of(tree_[axes].items.begin(), tree_[axes].items.end(),
                            [&](NodeId axis) { return add(Field(axis, "shape"), Field(axis, "stride")); });
    } else if (const NodeId shape = Field(layout, "shape"), steps = Field(layout, "stride");
               shape != kNoNode && steps != kNoNode && tree_[shape].kind == Kind::kTuple &&
               tree_[steps].kind == Kind::kTuple && tree_[shape].items.size() == tree_[steps].items.size()) {
      is_read = true;
      for (size_t i = 0; i < tree_[shape].items.size(); ++i)
        is_read = is_read && add(tree_[shape].items[i], tree_[steps].items[i]);
    }
    return is_read ? Status::Ok() : NotRead("a DTensor over a mesh of a kind that is not read");
  }

  // Which rank has the coordinate. Of a mesh that is a part of another the rank tells where the part begins.
  Result<Mesh> FindRank(Mesh mesh, const std::vector<std::vector<int64_t>>& sizes,
                        const std::vector<std::vector<int64_t>>& strides, std::optional<int64_t> rank) const {
    const auto places = layout::Product(mesh.shape);
    if (!places || *places < 1 || static_cast<uint64_t>(*places) > mesh.ranks.size())
      return Bad("a mesh of " + DescribeShape(mesh.shape) + " with " + std::to_string(mesh.ranks.size()) + " ranks");
    const auto place_of = [&](std::vector<int64_t> coordinate) {
      __int128 place = 0;
      for (size_t dim = 0; dim < sizes.size(); ++dim)
        for (size_t i = sizes[dim].size(); i-- > 0; coordinate[dim] /= sizes[dim][i])
          place += static_cast<__int128>(coordinate[dim] % sizes[dim][i]) * strides[dim][i];
      return place;
    };
    const auto count = static_cast<__int128>(mesh.ranks.size());
    __int128 base = 0;
    const bool is_part = static_cast<__int128>(*places) < count;
    if (is_part) {
      const auto found = std::find(mesh.ranks.begin(), mesh.ranks.end(), rank.value_or(-1));
      if (found == mesh.ranks.end()) return Bad("a mesh that is a part of another and does not say whose it is");
      base = (found - mesh.ranks.begin()) - place_of(mesh.coordinate);
    }
    std::vector<int64_t> ranks, coordinate(mesh.shape.size());
    for (int64_t i = 0; i < *places; ++i) {
      const __int128 place = base + place_of(coordinate);
      if (place < 0 || place >= count) return Bad("a mesh that reaches outside of its ranks");
      ranks.push_back(mesh.ranks[static_cast<size_t>(place)]);
      if (coordinate == mesh.coordinate) mesh.rank = ranks.back();
      for (size_t dim = coordinate.size(); dim-- > 0 && ++coordinate[dim] == mesh.shape[dim];) coordinate[dim] = 0;
    }
    if (rank && *rank != mesh.rank)
      return Bad("a mesh of rank " + std::to_string(*rank) + " whose coordinate " + DescribeShape(mesh.coordinate) +
                 " is rank " + std::to_string(mesh.rank) + "'s");
    KINTSUGI_CHECK(ranks.size() == static_cast<size_t>(*places),
                   "a mesh of " + std::to_string(*places) + " places has " + std::to_string(ranks.size()) + " ranks");
    std::sort(ranks.begin(), ranks.end());
    if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) return Bad("a mesh with a rank twice");
    mesh.ranks = std::move(ranks);
    return mesh;
  }

  // The elements of a small tensor of int32 or int64.
  Result<std::vector<int64_t>> IntsOf(NodeId id, std::vector<int64_t>* shape) const {
    if (id == kNoNode) return NotRead("a DTensor over a mesh of a kind that is not read");
    KINTSUGI_ASSIGN_OR_RETURN(const auto tensor, TensorOf(tree_, id, archive_.place));
    if (!tensor || (tensor->dtype != DType::kInt32 && tensor->dtype != DType::kInt64) || !IsDense(*tensor))
      return Bad("a mesh whose ranks are no tensor of numbers");
    KINTSUGI_ASSIGN_OR_RETURN(const zip::Entry* const entry, EntryOf(archive_, *tensor, "mesh"));
    const auto count = static_cast<uint64_t>(layout::Product(tensor->shape).value_or(0));
    if (count == 0 || count > kMeshRanksMax) return Bad("a mesh of " + std::to_string(count) + " ranks");
    std::vector<int64_t> numbers(count);
    const uint64_t size = DTypeSize(tensor->dtype);
    const char* const data = archive_.bytes.data() + entry->at + tensor->offset * size;
    for (uint64_t i = 0; i < count; ++i) {
      int32_t narrow = 0;
      if (size == 8)
        std::memcpy(&numbers[i], data + i * size, size);
      else
        std::memcpy(&narrow, data + i * size, size);
      if (size == 4) numbers[i] = narrow;
    }
    *shape = tensor->shape;
    return numbers;
  }

  Result<std::vector<AxisPlacement>> PlacementsOf(NodeId id, size_t dimensions, size_t axes) const {
    if (id == kNoNode || (tree_[id].kind != Kind::kTuple && tree_[id].kind != Kind::kList) ||
        tree_[id].items.size() != dimensions)
      return Bad("a DTensor whose placements are not those of its mesh");
    std::vector<AxisPlacement> placements;
    for (const NodeId item : tree_[id].items) {
      AxisPlacement placement;
      const auto axis = tree_.IntOf(Field(item, "dim"));
      if (tree_.IsOfClass(item, "Shard") || tree_.IsOfClass(item, "_StridedShard")) {
        const bool is_strided = tree_.IsOfClass(item, "_StridedShard");
        placement.kind = is_strided ? AxisPlacement::Kind::kStridedShard : AxisPlacement::Kind::kShard;
        if (!axis || *axis < 0 || *axis >= static_cast<int64_t>(axes))
          return Bad("a DTensor that is cut along an axis that it does not have");
        placement.axis = *axis;
        placement.split_factor = is_strided ? tree_.IntOf(Field(item, "split_factor")).value_or(0) : 1;
        if (placement.split_factor < 1) return Bad("a _StridedShard without a split factor");
      } else if (!tree_.IsOfClass(item, "Replicate")) {
        return NotRead("a DTensor of a placement that is not read (" + pickle::DescribeNode(tree_, item) +
                       "): save what redistribute() makes of it");
      }
      placements.push_back(placement);
    }
    return placements;
  }

  // The mesh's dimensions that cut the axis, first to last.
  Result<std::optional<std::vector<int64_t>>> OrderOf(NodeId id, int64_t axis) const {
    if (id == kNoNode || tree_[id].kind != Kind::kTuple) return std::optional<std::vector<int64_t>>();
    for (const NodeId entry : tree_[id].items) {
      const pickle::Items parts =
          tree_.IsOfClass(entry, "ShardOrderEntry") ? tree_[tree_[entry].items[1]].items : pickle::Items();
      const auto of = parts.size() == 2 ? tree_.IntOf(parts[0]) : std::nullopt;
      const auto dimensions = of ? tree_.NumbersOf(parts[1]) : std::nullopt;
      if (!dimensions) return NotRead("a DTensor whose order of cuts is of a kind that is not read");
      if (*of == axis) return dimensions;
    }
    return std::optional<std::vector<int64_t>>();
  }

  const Archive& archive_;
  const Tree& tree_;
  const NodeId id_;
  Meshes* const meshes_;
};

}  // namespace

bool IsDistributedTensor(const Tree& tree, NodeId id) {
  const auto arguments = tree.ArgumentsOf(id, "torch._tensor", "_rebuild_from_type_v2");
  if (!arguments || arguments->size() != 4) return false;
  const auto& type = tree[(*arguments)[1]];
  return tree.IsGlobal((*arguments)[0], "torch._utils", "_rebuild_wrapper_subclass") && type.kind == Kind::kGlobal &&
         type.name == "DTensor" && type.text.starts_with("torch.distributed");
}

Result<DistributedTensor> DistributedTensors::Read(NodeId id) { return SpecReader(archive_, id, &meshes_).Read(); }

Result<Span> RangeOf(int64_t axis, int64_t length, int64_t local, const std::vector<AxisPlacement>& placements,
                     const std::vector<int64_t>& mesh, const std::vector<int64_t>& coordinate,
                     const std::optional<std::vector<int64_t>>& said_order) {
  const std::string place = "axis " + std::to_string(axis) + " of " + std::to_string(length);
  KINTSUGI_CHECK(placements.size() == mesh.size() && coordinate.size() == mesh.size(),
                 place + ": " + std::to_string(placements.size()) + " placements, a mesh of " +
                     std::to_string(mesh.size()) + " dimensions, " + std::to_string(coordinate.size()) +
                     " coordinates");
  // One cut after the other, each of what the one before left.
  std::vector<size_t> order;
  bool is_strided = false;
  for (size_t dim = placements.size(); dim-- > 0;) {
    const AxisPlacement& placement = placements[dim];
    if (placement.kind == AxisPlacement::Kind::kReplicate || placement.axis != axis) continue;
    // Cut into as many parts as the split factor says before this one cuts each of them.
    size_t at = 0;
    __int128 parts = 1;
    while (parts < placement.split_factor && at < order.size()) parts *= mesh[order[at++]];
    if (parts != placement.split_factor)
      return Status(StatusCode::kInvalidArgument, place + ": a split factor of " +
                                                      std::to_string(placement.split_factor) +
                                                      ", which no dimensions of the mesh behind it make");
    order.insert(order.begin() + static_cast<ptrdiff_t>(at), dim);
    is_strided |= placement.kind == AxisPlacement::Kind::kStridedShard;
  }
  if (said_order && !is_strided) {
    std::vector<size_t> said(said_order->begin(), said_order->end()), sorted = said, known = order;
    std::sort(sorted.begin(), sorted.end());
    std::sort(known.begin(), known.end());
    if (sorted != known)
      return Status(StatusCode::kDataLoss,
                    place + ": shard_order names other dimensions of the mesh than the placements");
    order = std::move(said);
  }
  Span range{0, length};
  for (const size_t dim : order) {
    const Span part = ChunkOf(range.end - range.begin, mesh[dim], coordinate[dim]);
    range = {range.begin + part.begin, range.begin + part.end};
  }
  // The other reading, which torch has of a strided shard: the parts of each part, behind one another.
  Ranges ranges = {{0, length}};
  for (size_t dim = 0; is_strided && dim < placements.size(); ++dim) {
    const AxisPlacement& placement = placements[dim];
    if (placement.kind == AxisPlacement::Kind::kReplicate || placement.axis != axis) continue;
    const int64_t left = LengthOf(ranges);
    Ranges next;
    for (int64_t i = 0; i < placement.split_factor; ++i) {
      const Span outer = ChunkOf(left, placement.split_factor, i);
      const Span inner = ChunkOf(outer.end - outer.begin, mesh[dim], coordinate[dim]);
      AppendPart(ranges, {outer.begin + inner.begin, outer.begin + inner.end}, &next);
    }
    ranges = std::move(next);
  }
  if (range.end - range.begin != local)
    return Status(StatusCode::kDataLoss, place + ": the rank's part has " + std::to_string(local) +
                                             " elements, its placements and mesh say " +
                                             std::to_string(range.end - range.begin));
  if (is_strided && local > 0 && LengthOf(ranges) == local && ranges != Ranges{range})
    return Status(StatusCode::kInvalidArgument,
                  place + ": its strided shards do not divide it, and two readings of them fit: save it with DCP");
  return range;
}

}  // namespace kintsugi::formats::torch
