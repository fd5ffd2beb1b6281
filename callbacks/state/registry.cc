#include "callbacks/state/registry.h"

#include <cstring>

namespace kintsugi {
namespace {

template <typename Map>
std::vector<typename Map::mapped_type> Values(const Map& map) {
  std::vector<typename Map::mapped_type> values;
  for (const auto& [key, value] : map) values.push_back(value);
  return values;
}

void AppendU64(std::vector<uint8_t>* out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out->push_back(static_cast<uint8_t>(value >> (8 * i)));
}

// Reads one field of framed bytes; false when it would run past the end.
class Reader {
 public:
  explicit Reader(const std::vector<uint8_t>& bytes) : at_(bytes.data()), left_(bytes.size()) {}
  bool U64(uint64_t* value) {
    if (left_ < 8) return false;
    *value = 0;
    for (int i = 0; i < 8; ++i) *value |= static_cast<uint64_t>(at_[i]) << (8 * i);
    Advance(8);
    return true;
  }
  bool Span(uint64_t size, const uint8_t** data) {
    if (left_ < size) return false;
    *data = at_;
    Advance(size);
    return true;
  }
  bool AtEnd() const { return left_ == 0; }

 private:
  void Advance(uint64_t n) {
    at_ += n;
    left_ -= n;
  }
  const uint8_t* at_;
  uint64_t left_;
};

std::string Describe(const TensorSummary& s) {
  ShardedTensor tensor;
  tensor.key = s.key;
  tensor.dtype = s.dtype;
  tensor.global_shape = s.global_shape;
  tensor.local_shape = s.local_shape;
  tensor.global_offset = s.global_offset;
  tensor.flattened_range = s.flattened_range;
  return kintsugi::Describe(tensor);
}

}  // namespace

Status StateRegistry::AddTensor(const ShardedTensor& tensor) {
  if (sealed_)
    return {StatusCode::kFailedPrecondition,
            "tensor '" + tensor.key + "' registered after training began: register everything before Agent::Run"};
  KINTSUGI_RETURN_IF_ERROR(Validate(tensor));
  if (tensors_.count(tensor.key) || objects_.count(tensor.key))
    return {StatusCode::kInvalidArgument, "key '" + tensor.key + "' is registered twice"};
  if (tensor.memory.size_bytes > 0) {
    const auto begin = reinterpret_cast<uintptr_t>(tensor.memory.data);
    const auto end = begin + tensor.memory.size_bytes;
    auto next = by_address_.lower_bound(begin);
    const std::string* other = nullptr;
    if (next != by_address_.end() && next->first < end) other = &next->second;
    if (!other && next != by_address_.begin()) {
      const auto& previous = *std::prev(next);
      if (previous.first + tensors_.at(previous.second).memory.size_bytes > begin) other = &previous.second;
    }
    if (other)
      return {StatusCode::kInvalidArgument, "tensors '" + *other + "' and '" + tensor.key +
                                                "' overlap in memory: register each byte once"};
    by_address_.emplace(begin, tensor.key);
  }
  tensors_.emplace(tensor.key, tensor);
  return Status::Ok();
}

Status StateRegistry::AddObject(const ShardedObject& object) {
  if (sealed_)
    return {StatusCode::kFailedPrecondition,
            "object '" + object.key + "' registered after training began: register everything before Agent::Run"};
  if (object.key.empty()) return {StatusCode::kInvalidArgument, "an object has an empty key: every object needs a name"};
  if (tensors_.count(object.key) || objects_.count(object.key))
    return {StatusCode::kInvalidArgument, "key '" + object.key + "' is registered twice"};
  if (object.kind != ObjectKind::kDerived && object.kind != ObjectKind::kMirrored)
    return {StatusCode::kInvalidArgument, "object '" + object.key + "' is of no kind: say derived or mirrored"};
  if (object.kind == ObjectKind::kMirrored && (!object.capture || !object.restore))
    return {StatusCode::kInvalidArgument,
            "object '" + object.key + "' is mirrored but lacks a capture or a restore function"};
  objects_.emplace(object.key, object);
  return Status::Ok();
}

std::vector<const ShardedTensor*> StateRegistry::TensorsOfLayout(int layout) const {
  std::vector<const ShardedTensor*> found;
  for (const auto& [key, tensor] : tensors_)
    if (tensor.layout == layout) found.push_back(&tensor);
  return found;
}

uint64_t StateRegistry::ByteCount() const {
  uint64_t total = 0;
  for (const auto& [key, tensor] : tensors_) total += tensor.memory.size_bytes;
  return total;
}

RegistrySummary StateRegistry::Summary() const {
  RegistrySummary summary;
  for (const auto& tensor : Values(tensors_))
    summary.tensors.push_back({tensor.key, tensor.dtype, tensor.global_shape, tensor.local_shape, tensor.global_offset,
                               tensor.flattened_range, tensor.layout});
  for (const auto& object : Values(objects_)) summary.objects.push_back({object.key, object.kind});
  return summary;
}

bool StateRegistry::HasMirrored() const {
  for (const auto& [key, object] : objects_)
    if (object.kind == ObjectKind::kMirrored) return true;
  return false;
}

std::vector<uint8_t> StateRegistry::CaptureMirrored() const {
  std::vector<uint8_t> out, bytes;
  for (const auto& [key, object] : objects_) {
    if (object.kind != ObjectKind::kMirrored) continue;
    bytes.clear();
    object.capture(object.context, &bytes);
    AppendU64(&out, key.size());
    out.insert(out.end(), key.begin(), key.end());
    AppendU64(&out, bytes.size());
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

Status StateRegistry::RestoreMirrored(const std::vector<uint8_t>& bytes) const {
  Reader reader(bytes);
  for (const auto& [key, object] : objects_) {
    if (object.kind != ObjectKind::kMirrored) continue;
    uint64_t key_size = 0, size = 0;
    const uint8_t *key_data = nullptr, *data = nullptr;
    if (!reader.U64(&key_size) || !reader.Span(key_size, &key_data) || !reader.U64(&size) || !reader.Span(size, &data))
      return {StatusCode::kDataLoss, "mirrored objects end before '" + key + "'"};
    const std::string found(reinterpret_cast<const char*>(key_data), key_size);
    if (found != key)
      return {StatusCode::kDataLoss, "mirrored objects hold '" + found + "' where '" + key + "' is registered"};
    KINTSUGI_RETURN_IF_ERROR(object.restore(object.context, data, size).Annotate("object '" + key + "'"));
  }
  if (!reader.AtEnd()) return {StatusCode::kDataLoss, "mirrored objects hold more than this rank has registered"};
  return Status::Ok();
}

Status CompareReplicas(int layout, Rank rank_a, const RegistrySummary& a, Rank rank_b, const RegistrySummary& b) {
  const auto index = [layout](const RegistrySummary& summary) {
    std::map<std::string, const TensorSummary*> by_key;
    for (const TensorSummary& tensor : summary.tensors)
      if (tensor.layout == layout) by_key[tensor.key] = &tensor;
    return by_key;
  };
  const auto in_a = index(a), in_b = index(b);
  const auto missing = [](const std::string& key, Rank has, Rank lacks) {
    return Status(StatusCode::kInvalidArgument, "tensor '" + key + "' is registered on rank " + has.ToString() +
                                                    " but missing on its replica, rank " + lacks.ToString());
  };
  for (const auto& [key, tensor] : in_a) {
    const auto other = in_b.find(key);
    if (other == in_b.end()) return missing(key, rank_a, rank_b);
    if (*tensor == *other->second) continue;
    return {StatusCode::kInvalidArgument, "replicas differ: rank " + rank_a.ToString() + " registered " +
                                              Describe(*tensor) + ", rank " + rank_b.ToString() + " registered " +
                                              Describe(*other->second)};
  }
  for (const auto& [key, tensor] : in_b)
    if (!in_a.count(key)) return missing(key, rank_b, rank_a);
  return Status::Ok();
}

}  // namespace kintsugi
