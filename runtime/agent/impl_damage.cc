// Injected damage of registered memory, on the host and on a device.
#include <algorithm>

#include "runtime/agent/impl.h"
#include "runtime/inject/glob.h"

namespace kintsugi {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;

Status ReadState(const DeviceMemory* device, void* to, const void* from, uint64_t size_bytes) {
  if (device) return device->Read(to, from, size_bytes);
  std::copy_n(static_cast<const uint8_t*>(from), size_bytes, static_cast<uint8_t*>(to));
  return Status::Ok();
}

Status WriteState(const DeviceMemory* device, void* to, const void* from, uint64_t size_bytes) {
  if (device) return device->Write(to, from, size_bytes);
  std::copy_n(static_cast<const uint8_t*>(from), size_bytes, static_cast<uint8_t*>(to));
  return Status::Ok();
}

}  // namespace

std::vector<std::string> Agent::Impl::KeysToPoison(const Injection& injection) const {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : registry_.tensors()) {
    if (!registry_.DeviceOf(tensor).ok()) continue;
    const bool hit = injection.tensors.empty() ? tensor.layout == 0 : GlobMatch(injection.tensors, key);
    if (injection.level == UceLevel::kHigh || hit) keys.push_back(key);
  }
  return keys;
}

void Agent::Impl::Poison(const Injection& injection) {
  const std::vector<uint8_t> ones(kPieceBytes, 0xFF);  // not a number in every float type
  for (const std::string& key : KeysToPoison(injection)) {
    const ShardedTensor& tensor = registry_.tensors().at(key);
    const DeviceMemory* const device = registry_.DeviceOf(tensor).value();
    for (uint64_t at = 0; at < tensor.memory.size_bytes; at += kPieceBytes)
      (void)WriteState(device, static_cast<uint8_t*>(tensor.memory.data) + at, ones.data(),
                       std::min(kPieceBytes, tensor.memory.size_bytes - at));
  }
}

void Agent::Impl::Flip(const Injection& injection) {
  for (const std::string& key : KeysToPoison(injection)) {
    const ShardedTensor& tensor = registry_.tensors().at(key);
    const DeviceMemory* const device = registry_.DeviceOf(tensor).value();
    auto* const bytes = static_cast<uint8_t*>(tensor.memory.data);
    const uint64_t element = std::max<uint64_t>(DTypeSize(tensor.dtype), 1);
    const uint64_t count = tensor.memory.size_bytes / element, per_piece = kPieceBytes / element;
    std::vector<uint8_t> piece(per_piece * element);
    // A high bit of an element that is not zero: the last bit of a moment is gone with the next update's rounding.
    for (uint64_t done = 0, at = count / 2; done < count;) {
      const uint64_t here = std::min({per_piece, count - at, count - done});
      if (!ReadState(device, piece.data(), bytes + at * element, here * element).ok()) return;
      for (uint64_t i = 0; i < here; ++i) {
        uint8_t* const found = &piece[i * element];
        if (std::all_of(found, found + element, [](uint8_t byte) { return byte == 0; })) continue;
        found[element > 1 ? element - 2 : 0] ^= 0x40;
        (void)WriteState(device, bytes + (at + i) * element, found, element);
        return;
      }
      done += here;
      at = (at + here) % count;
    }
  }
}

}  // namespace kintsugi
