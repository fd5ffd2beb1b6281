#include "replica/formats/torch/tensor.h"

#include <algorithm>
#include <unordered_set>

#include "replica/layout/box.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::torch {
namespace {

using pickle::Kind;
using pickle::NodeId;
using pickle::Tree;

struct StorageClass {
  std::string_view name, dtype;
};
// Types without a class here are written over an untyped storage, in bytes.
constexpr StorageClass kClasses[] = {
    {"DoubleStorage", "float64"},
    {"FloatStorage", "float32"},
    {"HalfStorage", "float16"},
    {"BFloat16Storage", "bfloat16"},
    {"LongStorage", "int64"},
    {"IntStorage", "int32"},
    {"ShortStorage", "int16"},
    {"CharStorage", "int8"},
    {"ByteStorage", "uint8"},
    {"BoolStorage", "bool"},
    {"ComplexFloatStorage", "complex64"},
    {"ComplexDoubleStorage", "complex128"},
};

}  // namespace

Shape DenseStrides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;)
    if (__builtin_mul_overflow(strides[axis], std::max<int64_t>(shape[axis], 1), &strides[axis - 1]))
      strides[axis - 1] = INT64_MAX;
  return strides;
}

std::optional<DType> DTypeOfGlobal(const Tree& tree, NodeId id) {
  if (id >= tree.size() || tree[id].kind != Kind::kGlobal || tree[id].text != "torch") return std::nullopt;
  if (const auto known = DTypeFromName(tree[id].name)) return known;
  struct Alias {
    std::string_view name;
    DType dtype;
  };
  constexpr Alias kAliases[] = {{"float", DType::kFloat32}, {"double", DType::kFloat64}, {"half", DType::kFloat16},
                                {"long", DType::kInt64},    {"int", DType::kInt32},      {"short", DType::kInt16}};
  for (const Alias& alias : kAliases)
    if (alias.name == tree[id].name) return alias.dtype;
  return std::nullopt;
}

Result<StoredStorage> StorageOf(const Tree& tree, NodeId persistent, const std::string& place) {
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(tree[persistent].at) + ": " + what);
  };
  // ("storage", class, key, device, elements), in files without a zip followed by None or by (key, first element,
  // elements) of a part of it.
  KINTSUGI_CHECK(tree[persistent].kind == Kind::kPersistent && tree[persistent].items.size() == 1,
                 "'" + place + "': node " + std::to_string(persistent) + " is read as a storage, and is " +
                     DescribeNode(tree, persistent));
  const auto& id = tree[tree[persistent].items[0]];
  if (id.kind != Kind::kTuple || id.items.size() < 5 || id.items.size() > 6) return bad("a storage that is none");
  const auto key = tree.TextOf(id.items[2]);
  const auto count = tree.IntOf(id.items[4]);
  const auto& type = tree[id.items[1]];
  if (tree.TextOf(id.items[0]) != "storage" || !key || !count || *count < 0 || type.kind != Kind::kGlobal)
    return bad("a storage that is none");
  StoredStorage storage;
  storage.key = std::string(*key);
  for (const StorageClass& one : kClasses)
    if (type.text == "torch" && type.name == one.name) storage.dtype = *DTypeFromName(one.dtype);
  const bool untyped = type.text == "torch.storage" && type.name == "UntypedStorage";
  if (!storage.dtype && !untyped)
    return Status(StatusCode::kInvalidArgument,
                  bad("a storage of the class " + pickle::DescribeNode(tree, id.items[1]) + ", which is not supported")
                      .message());
  const uint64_t unit = untyped ? 1 : DTypeSize(*storage.dtype);
  if (static_cast<uint64_t>(*count) > static_cast<uint64_t>(INT64_MAX) / unit)
    return bad("a storage of more than 63 bits of bytes");
  storage.bytes = static_cast<uint64_t>(*count) * unit;
  if (id.items.size() == 6 && tree[id.items[5]].kind != Kind::kNone) {
    const auto& view = tree[id.items[5]];
    const auto first = view.items.size() == 3 ? tree.IntOf(view.items[1]) : std::nullopt;
    if (view.kind != Kind::kTuple || !first || *first < 0 || *first > *count)
      return bad("a part of a storage that is none");
    storage.view_offset = static_cast<uint64_t>(*first);
  }
  return storage;
}

Result<std::optional<PickledTensor>> TensorOf(const Tree& tree, NodeId id, const std::string& place, bool applies) {
  const auto bad = [&](NodeId node, const std::string& what) {
    return Status(StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(tree[node].at) + ": " + what);
  };
  const auto not_read = [&](NodeId node, const std::string& what) {
    return Status(StatusCode::kInvalidArgument, bad(node, what).message());
  };
  // A parameter is its tensor.
  for (int depth = 0; depth < 4; ++depth) {
    auto parameter = tree.ArgumentsOf(id, "torch._utils", "_rebuild_parameter");
    if (!parameter) parameter = tree.ArgumentsOf(id, "torch._utils", "_rebuild_parameter_with_state");
    if (!parameter) break;
    if (parameter->empty()) return bad(id, "a parameter without a tensor");
    id = parameter->front();
  }
  auto v2 = tree.ArgumentsOf(id, "torch._utils", "_rebuild_tensor_v2");
  if (!v2) v2 = tree.ArgumentsOf(id, "torch._utils", "_rebuild_tensor");  // until torch 0.4
  auto v3 = tree.ArgumentsOf(id, "torch._utils", "_rebuild_tensor_v3");
  // A plain tensor that somebody hung attributes on: (function, class, its arguments, the attributes).
  if (const auto typed = tree.ArgumentsOf(id, "torch._tensor", "_rebuild_from_type_v2");
      typed && typed->size() == 4 && tree[(*typed)[2]].kind == Kind::kTuple &&
      (tree.IsGlobal((*typed)[1], "torch", "Tensor") ||
       tree.IsGlobal((*typed)[1], "torch.nn.parameter", "Parameter"))) {
    if (tree.IsGlobal((*typed)[0], "torch._utils", "_rebuild_tensor_v2")) v2 = tree[(*typed)[2]].items;
    if (tree.IsGlobal((*typed)[0], "torch._utils", "_rebuild_tensor_v3")) v3 = tree[(*typed)[2]].items;
  }
  if (!v2 && !v3) {
    const auto& node = tree[id];
    if (node.kind == Kind::kCall && tree[node.items[0]].kind == Kind::kGlobal) {
      const auto& callee = tree[node.items[0]];
      if (callee.name.find("_rebuild_") != std::string_view::npos && callee.text.starts_with("torch")) {
        // A subclass is known by its class, the second argument.
        const auto typed = tree.ArgumentsOf(id, "torch._tensor", "_rebuild_from_type_v2");
        const NodeId kind = typed && typed->size() > 1 ? (*typed)[1] : node.items[0];
        return not_read(id, "a tensor of a kind that is not read (" + pickle::DescribeNode(tree, kind) + ")");
      }
    }
    return std::optional<PickledTensor>();
  }
  const auto& arguments = v2 ? *v2 : *v3;
  const size_t least = v2 ? 4 : 7;
  if (arguments.size() < least) return bad(id, "a tensor with too few parts");
  // Behind what every tensor has may be a dictionary of what its bytes alone do not say: views that are conjugated or
  // negated when they are read.
  PickledTensor tensor;
  const size_t metadata_at = v2 ? 6 : 7;
  if (arguments.size() > metadata_at && tree[arguments[metadata_at]].kind != Kind::kNone) {
    const auto metadata = tree.PairsOf(arguments[metadata_at]);
    if (!metadata) return bad(id, "a tensor whose metadata is no dictionary");
    for (size_t i = 0; i + 1 < metadata->size(); i += 2) {
      const auto& value = tree[(*metadata)[i + 1]];
      if (value.kind == Kind::kBool && value.number == 0) continue;
      const auto name = tree.TextOf((*metadata)[i]);
      if (applies && value.kind == Kind::kBool && (name == "conj" || name == "neg")) {
        (name == "conj" ? tensor.is_conjugated : tensor.is_negated) = true;
        continue;
      }
      return not_read(id, "a view whose elements are not as they are stored ('" +
                              (name ? std::string(*name) : pickle::DescribeNode(tree, (*metadata)[i])) +
                              "'): save tensor.resolve_conj().resolve_neg()");
    }
  }
  if (tree[arguments[0]].kind != Kind::kPersistent) return bad(id, "a tensor without a storage");
  KINTSUGI_ASSIGN_OR_RETURN(StoredStorage storage, StorageOf(tree, arguments[0], place));
  tensor.storage = std::move(storage.key);
  tensor.storage_bytes = storage.bytes;
  if (storage.dtype) {
    tensor.dtype = *storage.dtype;
    if (v3 && DTypeOfGlobal(tree, arguments[6]) != storage.dtype)
      return bad(id, "a tensor of the type " + pickle::DescribeNode(tree, arguments[6]) + " over a storage of " +
                         std::string(DTypeName(tensor.dtype)));
  } else {
    const auto dtype = v3 ? DTypeOfGlobal(tree, arguments[6]) : std::nullopt;
    if (!dtype)
      return not_read(
          id, v3 ? "a tensor of the type " + pickle::DescribeNode(tree, arguments[6]) + ", which is not supported"
                 : "a tensor over an untyped storage that does not say its type");
    tensor.dtype = *dtype;
  }
  const auto offset = tree.IntOf(arguments[1]);
  const auto shape = tree.NumbersOf(arguments[2]), strides = tree.NumbersOf(arguments[3]);
  if (!offset || *offset < 0 || !shape || !strides || shape->size() != strides->size())
    return bad(id, "a tensor whose offset, shape or strides are none");
  for (const int64_t length : *shape)
    if (length < 0) return bad(id, "a tensor with a negative length");
  for (const int64_t stride : *strides)
    if (stride < 0) return bad(id, "a tensor with a negative stride");
  if (__builtin_add_overflow(static_cast<uint64_t>(*offset), storage.view_offset, &tensor.offset))
    return bad(id, "a tensor whose offset has more than 64 bits");
  KINTSUGI_CHECK(DTypeSize(tensor.dtype) > 0,
                 "'" + place + "': a tensor in storage '" + tensor.storage + "' is of no type");
  tensor.shape = *shape;
  tensor.strides = *strides;
  return std::optional<PickledTensor>(std::move(tensor));
}

bool HoldsStorage(const Tree& tree, NodeId id) {
  // Each node once, however often it is shared.
  std::unordered_set<NodeId> seen;
  std::vector<NodeId> open = {id};
  while (!open.empty()) {
    const NodeId at = open.back();
    open.pop_back();
    if (at >= tree.size() || !seen.insert(at).second) continue;
    const auto& node = tree[at];
    if (node.kind == Kind::kPersistent) return true;
    for (const auto* items : {&node.items, &node.appended, &node.set})
      open.insert(open.end(), items->begin(), items->end());
    open.push_back(node.state);
  }
  return false;
}

void WriteTensor(const std::string& storage, DType dtype, const Shape& shape, pickle::PickleWriter* writer) {
  std::string_view name = "UntypedStorage";
  for (const StorageClass& one : kClasses)
    if (one.dtype == DTypeName(dtype)) name = one.name;
  const bool untyped = name == "UntypedStorage";
  KINTSUGI_CHECK(layout::Product(shape).has_value(), "storage '" + storage + "' is written as " + DescribeShape(shape) +
                                                         ", more elements than 63 bits count");
  const auto elements = static_cast<int64_t>(*layout::Product(shape));
  writer->Global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  writer->Mark();
  writer->Mark();
  writer->Text("storage");
  writer->Global(untyped ? "torch.storage" : "torch", name);
  writer->Text(storage);
  writer->Text("cpu");
  writer->Int(untyped ? elements * static_cast<int64_t>(DTypeSize(dtype)) : elements);
  writer->Tuple();
  writer->PersistentId();
  writer->Int(0);
  writer->Numbers(shape);
  writer->Numbers(DenseStrides(shape));
  writer->Bool(false);
  writer->Global("collections", "OrderedDict");
  writer->EmptyTuple();
  writer->Call();
  if (untyped) writer->Global("torch", DTypeName(dtype));
  writer->Tuple();
  writer->Call();
}

}  // namespace kintsugi::formats::torch
