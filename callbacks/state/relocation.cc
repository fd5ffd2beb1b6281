#include "callbacks/state/relocation.h"

#include <iterator>
#include <utility>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

uintptr_t Start(const Memory& memory) { return reinterpret_cast<uintptr_t>(memory.data); }

bool IsSameShard(const ShardedTensor& a, const ShardedTensor& b) {
  return a.dtype == b.dtype && a.global_shape == b.global_shape && a.local_shape == b.local_shape &&
         a.global_offset == b.global_offset && a.flattened_range == b.flattened_range && a.layout == b.layout;
}

std::string Words(const ShardedTensor& tensor) {
  return Describe(tensor) + " of layout " + std::to_string(tensor.layout);
}

}  // namespace

Relocation::Relocation(const StateRegistry& registry) : registry_(registry) {
  for (const auto& [key, tensor] : registry.tensors())
    if (tensor.memory.size_bytes > 0) by_address_.emplace(Start(tensor.memory), key);
}

const Memory& Relocation::PlaceOf(const std::string& key) const {
  const auto moved = moved_.find(key);
  return moved != moved_.end() ? moved->second : registry_.tensors().at(key).memory;
}

// Places are disjoint, so only the neighbours on both sides can reach in.
const std::string* Relocation::WhoLiesIn(const Memory& memory) const {
  const auto next = by_address_.lower_bound(Start(memory));
  if (next != by_address_.end() && next->first < Start(memory) + memory.size_bytes) return &next->second;
  if (next == by_address_.begin()) return nullptr;
  const auto& [start, key] = *std::prev(next);
  return start + PlaceOf(key).size_bytes > Start(memory) ? &key : nullptr;
}

Status Relocation::Move(const ShardedTensor& tensor) {
  const std::string what = "tensor '" + PrintableKey(tensor.key) + "'";
  const auto found = registry_.tensors().find(tensor.key);
  if (found == registry_.tensors().end() || removed_.count(tensor.key))
    return {StatusCode::kNotFound, what + " cannot move: no tensor of this key is registered"};
  if (!IsSameShard(tensor, found->second))
    return {StatusCode::kInvalidArgument, what + " moves as " + Words(tensor) + ", but is registered as " +
                                              Words(found->second) + ": where it lies may change, and nothing else"};
  KINTSUGI_RETURN_IF_ERROR(Validate(tensor));
  if (tensor.memory.size_bytes > 0) {
    // The new place may reach into the tensor's own old one.
    const uintptr_t before = Start(PlaceOf(tensor.key));
    by_address_.erase(before);
    if (const std::string* other = WhoLiesIn(tensor.memory)) {
      const std::string text = what + " cannot move to where tensor '" + *other + "' lies: their memory overlaps";
      by_address_.emplace(before, tensor.key);
      return {StatusCode::kInvalidArgument, text};
    }
    by_address_.emplace(Start(tensor.memory), tensor.key);
  }
  moved_[tensor.key] = tensor.memory;
  return Status::Ok();
}

Status Relocation::Remove(const std::string& key) {
  if (!registry_.tensors().count(key) || removed_.count(key))
    return {StatusCode::kNotFound,
            "tensor '" + PrintableKey(key) + "' cannot be unregistered: no tensor of this key is registered"};
  if (PlaceOf(key).size_bytes > 0) by_address_.erase(Start(PlaceOf(key)));
  moved_.erase(key);
  removed_.insert(key);
  return Status::Ok();
}

StateRegistry Relocation::Moved() const {
  StateRegistry registry;
  const auto add = [](const Status& status) { KINTSUGI_CHECK(status.ok(), "a registry that cannot be made again"); };
  for (const auto& [key, tensor] : registry_.tensors()) {
    if (removed_.count(key)) continue;
    ShardedTensor moved = tensor;
    moved.memory = PlaceOf(key);
    add(registry.AddTensor(moved));
  }
  for (const auto& [key, object] : registry_.objects()) add(registry.AddObject(object));
  add(registry.SetDeviceMemory(registry_.device_memory()));
  registry.Seal();
  return registry;
}

}  // namespace kintsugi
