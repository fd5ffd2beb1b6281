#include "callbacks/state/registry.h"

#include <cstdio>
#include <string_view>

#include "callbacks/state/key.h"

namespace kintsugi {
namespace {

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
  uint64_t left() const { return left_; }

 private:
  void Advance(uint64_t n) {
    at_ += n;
    left_ -= n;
  }
  const uint8_t* at_;
  uint64_t left_;
};

// One mirrored object inside the bytes it came in.
struct Frame {
  const ShardedObject* object = nullptr;
  const uint8_t* data = nullptr;
  uint64_t size_bytes = 0;
};

std::string_view KindName(ObjectKind kind) { return kind == ObjectKind::kMirrored ? "mirrored" : "derived"; }

std::string DescribeMemory(const Memory& memory) {
  char text[64];
  std::snprintf(text, sizeof text, "[0x%llx, +%llu bytes)",
                static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(memory.data)),
                static_cast<unsigned long long>(memory.size_bytes));
  return text;
}

}  // namespace

Status StateRegistry::CheckOpen(std::string_view what, const std::string& key) const {
  if (sealed_)
    return {StatusCode::kFailedPrecondition, std::string(what) + " '" + PrintableKey(key) +
                                                 "' registered after training began: register everything before "
                                                 "Agent::Run"};
  KINTSUGI_RETURN_IF_ERROR(ValidateKey(key).Annotate(what));
  const std::string taken = "key '" + key + "' is registered twice: " + std::string(what) + " now, before as ";
  if (const auto tensor = tensors_.find(key); tensor != tensors_.end())
    return {StatusCode::kInvalidArgument, taken + "tensor " + kintsugi::Describe(tensor->second)};
  if (const auto object = objects_.find(key); object != objects_.end())
    return {StatusCode::kInvalidArgument, taken + std::string(KindName(object->second.kind)) + " object"};
  return Status::Ok();
}

const ShardedTensor* StateRegistry::Overlapping(const Memory& memory) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data);
  const auto next = by_address_.lower_bound(begin);
  // Registered memory is disjoint, so only the neighbours on both sides can reach in.
  if (next != by_address_.end() && next->first < begin + memory.size_bytes) return &tensors_.at(next->second);
  if (next == by_address_.begin()) return nullptr;
  const auto& [start, key] = *std::prev(next);
  const ShardedTensor& before = tensors_.at(key);
  return start + before.memory.size_bytes > begin ? &before : nullptr;
}

Status StateRegistry::AddTensor(const ShardedTensor& tensor) {
  KINTSUGI_RETURN_IF_ERROR(CheckOpen("tensor", tensor.key));
  KINTSUGI_RETURN_IF_ERROR(Validate(tensor));
  if (tensor.memory.size_bytes > 0) {
    if (const ShardedTensor* other = Overlapping(tensor.memory))
      return {StatusCode::kInvalidArgument, "tensors '" + other->key + "' at " + DescribeMemory(other->memory) +
                                                " and '" + tensor.key + "' at " + DescribeMemory(tensor.memory) +
                                                " overlap in memory: register each byte once"};
    by_address_.emplace(reinterpret_cast<uintptr_t>(tensor.memory.data), tensor.key);
  }
  tensors_.emplace(tensor.key, tensor);
  return Status::Ok();
}

Status StateRegistry::AddObject(const ShardedObject& object) {
  KINTSUGI_RETURN_IF_ERROR(CheckOpen("object", object.key));
  if (object.kind != ObjectKind::kDerived && object.kind != ObjectKind::kMirrored)
    return {StatusCode::kInvalidArgument, "object '" + object.key + "' is of no kind (number " +
                                              std::to_string(static_cast<int>(object.kind)) +
                                              "): say derived or mirrored"};
  if (object.kind == ObjectKind::kMirrored && (!object.capture || !object.restore))
    return {StatusCode::kInvalidArgument, "object '" + object.key + "' is mirrored but lacks a " +
                                              (object.capture ? "restore" : "capture") + " function"};
  if (object.take_over == TakeOver::kOwn && !object.take_over_all)
    return {StatusCode::kInvalidArgument,
            "object '" + object.key + "' is taken over by a function of its own, but lacks one"};
  if (object.take_over == TakeOver::kCell && GridName(object.key).empty())
    return {StatusCode::kInvalidArgument,
            "object '" + object.key +
                "' is taken over as a cell of a grid, which its key must name: 'NAME/shard_0.1_2.2' "
                "is the first of two along one axis and the second of two along the other"};
  if (object.kind == ObjectKind::kDerived && object.take_over != TakeOver::kUnsaid &&
      object.take_over != TakeOver::kDerived)
    return {StatusCode::kInvalidArgument,
            "object '" + object.key + "' is derived: it has no bytes that could be taken over; say TakeOver::kDerived"};
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
  for (const auto& [key, tensor] : tensors_) summary.tensors.push_back(SummaryOf(tensor));
  for (const auto& [key, object] : objects_) summary.objects.push_back({object.key, object.kind});
  return summary;
}

bool StateRegistry::HasMirrored() const {
  for (const auto& [key, object] : objects_)
    if (object.kind == ObjectKind::kMirrored) return true;
  return false;
}

MirroredObjects StateRegistry::ShareMirrored() const {
  MirroredObjects shared;
  for (const auto& [key, object] : objects_) {
    if (object.kind != ObjectKind::kMirrored) continue;
    if (object.share) {
      shared.push_back({key, object.share(object.context)});
      continue;
    }
    auto bytes = std::make_shared<std::vector<uint8_t>>();
    object.capture(object.context, bytes.get());
    shared.push_back({key, std::move(bytes)});
  }
  return shared;
}

std::vector<uint8_t> StateRegistry::CaptureMirrored() const { return JoinMirrored(ShareMirrored()); }

void AppendMirrored(const std::string& key, const std::vector<uint8_t>& bytes, std::vector<uint8_t>* out) {
  AppendU64(out, key.size());
  out->insert(out->end(), key.begin(), key.end());
  AppendU64(out, bytes.size());
  out->insert(out->end(), bytes.begin(), bytes.end());
}

Result<std::map<std::string, std::vector<uint8_t>>> UnpackMirrored(const std::vector<uint8_t>& bytes) {
  std::map<std::string, std::vector<uint8_t>> objects;
  Reader reader(bytes);
  while (!reader.AtEnd()) {
    uint64_t key_size = 0, size = 0;
    const uint8_t *key = nullptr, *data = nullptr;
    if (!reader.U64(&key_size) || !reader.Span(key_size, &key) || !reader.U64(&size) || !reader.Span(size, &data))
      return Status(StatusCode::kDataLoss,
                    "mirrored objects (" + std::to_string(bytes.size()) + " bytes): they end within an object");
    const auto [at, is_new] = objects.try_emplace(std::string(reinterpret_cast<const char*>(key), key_size));
    if (!is_new)
      return Status(StatusCode::kDataLoss, "mirrored objects: '" + PrintableKey(at->first) + "' is there twice");
    at->second.assign(data, data + size);
  }
  return objects;
}

Status StateRegistry::SetDeviceMemory(std::shared_ptr<const DeviceMemory> memory) {
  if (sealed_)
    return {StatusCode::kFailedPrecondition,
            "device memory handed over after training began: hand it over before Agent::Run"};
  device_memory_ = std::move(memory);
  return Status::Ok();
}

Result<const DeviceMemory*> StateRegistry::DeviceOf(const ShardedTensor& tensor) const {
  if (tensor.memory.kind != MemoryKind::kDevice) return nullptr;
  if (device_memory_ && device_memory_->device() == tensor.memory.device) return device_memory_.get();
  return Status(StatusCode::kFailedPrecondition,
                "tensor '" + tensor.key + "' lies on device " + std::to_string(tensor.memory.device) + ", but " +
                    (device_memory_ ? "the device memory that was handed over is device " +
                                          std::to_string(device_memory_->device()) + "'s"
                                    : "no device memory was handed over") +
                    ": Agent::SetDeviceMemory (kintsugi_open_device)");
}

Status StateRegistry::RestoreMirrored(const std::vector<uint8_t>& bytes) const {
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss, "mirrored objects (" + std::to_string(bytes.size()) + " bytes): " + what);
  };
  // Everything is read before anything is restored: damaged bytes must not leave half of the objects at another step.
  std::vector<Frame> frames;
  Reader reader(bytes);
  for (const auto& [key, object] : objects_) {
    if (object.kind != ObjectKind::kMirrored) continue;
    Frame frame{&object};
    uint64_t key_size = 0;
    const uint8_t* key_data = nullptr;
    if (!reader.U64(&key_size) || !reader.Span(key_size, &key_data) || !reader.U64(&frame.size_bytes) ||
        !reader.Span(frame.size_bytes, &frame.data))
      return bad("they end before or within '" + key + "'");
    const std::string found(reinterpret_cast<const char*>(key_data), key_size);
    if (found != key) return bad("they hold '" + PrintableKey(found) + "' where '" + key + "' is registered");
    frames.push_back(frame);
  }
  if (!reader.AtEnd())
    return bad("they hold " + std::to_string(reader.left()) + " bytes more than this rank has registered objects for");
  for (const Frame& frame : frames)
    KINTSUGI_RETURN_IF_ERROR(frame.object->restore(frame.object->context, frame.data, frame.size_bytes)
                                 .Annotate("object '" + frame.object->key + "'"));
  return Status::Ok();
}

}  // namespace kintsugi
