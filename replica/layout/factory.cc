#include "replica/layout/factory.h"

#include <algorithm>
#include <set>

#include "callbacks/state/key.h"
#include "replica/layout/shard.h"

namespace kintsugi::layout {
namespace {

LayoutError FactoryError(const ShardedTensorFactory& factory, const std::string& what) {
  return {ErrorCode::kFactory, factory.tensor.key, {}, {}, "factory of " + Describe(factory.tensor) + " " + what};
}

std::string IdText(const std::vector<int64_t>& id) { return DescribeShape(id); }

std::optional<LayoutError> CheckPart(const ShardedTensorFactory& factory, const ShardedTensor& part) {
  const ShardedTensor& tensor = factory.tensor;
  if (const Status valid = ValidateShard(part); !valid.ok())
    return FactoryError(factory, "built a bad part: " + valid.message());
  if (!part.key.starts_with(tensor.key))
    return FactoryError(factory,
                        "built a part with key '" + part.key + "', which does not begin with '" + tensor.key + "'");
  if (part.dtype != tensor.dtype)
    return FactoryError(factory, "built '" + part.key + "' as " + std::string(DTypeName(part.dtype)) + " of " +
                                     std::string(DTypeName(tensor.dtype)));
  if (part.replica_id != tensor.replica_id)
    return FactoryError(factory, "built '" + part.key + "' with replica id " + IdText(part.replica_id) + " of " +
                                     IdText(tensor.replica_id));
  return std::nullopt;
}

// That the parts' memory is the tensor's, each byte once.
std::optional<LayoutError> CheckMemory(const ShardedTensorFactory& factory, const std::vector<ShardedTensor>& parts) {
  if (factory.tensor.memory.data == nullptr) return std::nullopt;
  std::vector<std::pair<uintptr_t, uint64_t>> extents;
  for (const ShardedTensor& part : parts)
    if (part.memory.size_bytes > 0)
      extents.emplace_back(reinterpret_cast<uintptr_t>(part.memory.data), part.memory.size_bytes);
  std::sort(extents.begin(), extents.end());
  const auto begin = reinterpret_cast<uintptr_t>(factory.tensor.memory.data);
  uintptr_t next = begin;
  for (const auto& [start, size] : extents) {
    if (start != next)
      return FactoryError(factory, "built parts whose memory " +
                                       std::string(start < next ? "overlaps or starts outside" : "leaves a gap") +
                                       " at byte " + std::to_string(static_cast<int64_t>(start - begin)) +
                                       ", where byte " + std::to_string(next - begin) + " must be next");
    next += size;
  }
  if (next - begin != factory.tensor.memory.size_bytes)
    return FactoryError(factory, "built parts of " + std::to_string(next - begin) + " bytes of " +
                                     std::to_string(factory.tensor.memory.size_bytes));
  return std::nullopt;
}

bool IsSamePlace(const ShardedTensor& a, const ShardedTensor& b) {
  return a.key == b.key && a.dtype == b.dtype && a.global_shape == b.global_shape && a.local_shape == b.local_shape &&
         a.global_offset == b.global_offset && a.flattened_range == b.flattened_range;
}

}  // namespace

Result<std::vector<ShardedTensor>, LayoutError> BuildParts(const ShardedTensorFactory& factory) {
  if (!factory.build) return FactoryError(factory, "has no build function");
  std::vector<ShardedTensor> parts;
  if (const Status built = factory.build(factory.tensor, &parts); !built.ok())
    return FactoryError(factory, "failed: " + built.ToString());
  int64_t elements = 0;
  for (const ShardedTensor& part : parts) {
    if (auto error = CheckPart(factory, part)) return *error;
    if (__builtin_add_overflow(elements, part.ElementCount(), &elements))
      return FactoryError(factory, "built parts past 63 bits");
  }
  if (elements != factory.tensor.ElementCount())
    return FactoryError(factory, "built parts of " + std::to_string(elements) + " elements of " +
                                     std::to_string(factory.tensor.ElementCount()));
  if (auto error = CheckMemory(factory, parts)) return *error;
  return parts;
}

Result<ShardedTensor, LayoutError> MergeParts(const ShardedTensorFactory& factory,
                                              const std::vector<ShardedTensor>& parts) {
  if (!factory.merge) return FactoryError(factory, "has no merge function");
  auto wanted = BuildParts(factory);
  if (!wanted.ok()) return wanted.error();
  if (parts.size() != wanted->size())
    return FactoryError(factory, "makes " + std::to_string(wanted->size()) + " parts, but " +
                                     std::to_string(parts.size()) + " were loaded");
  for (size_t i = 0; i < parts.size(); ++i)
    if (!IsSamePlace(parts[i], (*wanted)[i]))
      return FactoryError(factory, "makes " + Describe((*wanted)[i]) + ", but " + Describe(parts[i]) + " was loaded");
  if (const Status merged = factory.merge(parts, factory.tensor); !merged.ok())
    return FactoryError(factory, "could not merge: " + merged.ToString());
  return factory.tensor;
}

std::string StateKey(const std::string& parameter_key, const std::string& state_name) {
  return "optimizer.state." + state_name + "." + parameter_key;
}

ShardedTensorFactory StateFactory(const ShardedTensorFactory& parameter, const ShardedTensor& state,
                                  const std::string& state_name) {
  ShardedTensorFactory factory = parameter;
  factory.tensor = state;
  factory.tensor.key = StateKey(parameter.tensor.key, state_name);
  return factory;
}

Metadata DescribeRank(int32_t rank, const RankState& state) {
  MetadataBuilder builder;
  builder.AddRank(rank);
  std::set<std::string> local;
  for (const LocalNonpersistent& value : state.local) local.insert(value.key);
  const auto is_local = [&](const std::string& key) {
    if (!local.contains(key)) return false;
    builder.AddRefusal(rank, {ErrorCode::kKey, key, {}, {}, "'" + PrintableKey(key) + "' is both local and stored"});
    return true;
  };
  for (const ShardedTensor& tensor : state.tensors)
    if (!is_local(tensor.key)) builder.AddTensor(rank, tensor);
  for (const ShardedObject& object : state.objects)
    if (!is_local(object.key)) builder.AddObject(rank, object);
  for (const ShardedTensorFactory& factory : state.factories) {
    const auto parts = BuildParts(factory);
    if (!parts.ok()) {
      builder.AddRefusal(rank, parts.error());
      continue;
    }
    for (const ShardedTensor& part : *parts)
      if (!is_local(part.key)) builder.AddTensor(rank, part);
  }
  return builder.Build();
}

}  // namespace kintsugi::layout
