#include "runtime/agent/state_damage.h"

#include <unistd.h>

#include <algorithm>

#include "runtime/base/check.h"
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

// On a device all of it: how its memory was mapped is known to its driver.
AddressRange WholePages(const Memory& memory) {
  if (memory.kind == MemoryKind::kDevice) return {reinterpret_cast<uint64_t>(memory.data), memory.size_bytes};
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uint64_t>(memory.data), end = start + memory.size_bytes;
  const uint64_t from = (start + page - 1) / page * page, to = end / page * page;
  return {from, from < to ? to - from : 0};
}

}  // namespace

std::vector<std::string> StateDamage::KeysOf(const Injection& injection) const {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : registered_.registry().tensors()) {
    if (!registered_.registry().DeviceOf(tensor).ok()) continue;
    const bool hit = injection.tensors.empty() ? tensor.layout == 0 : GlobMatch(injection.tensors, key);
    if (injection.level == UceLevel::kHigh || hit) keys.push_back(key);
  }
  return keys;
}

std::vector<AddressRange> StateDamage::PagesOf(const Injection& injection) const {
  std::vector<AddressRange> pages;
  for (const std::string& key : KeysOf(injection))
    pages.push_back(WholePages(registered_.registry().tensors().at(key).memory));
  return pages;
}

void StateDamage::Poison(const Injection& injection) const {
  const std::vector<uint8_t> ones(kPieceBytes, 0xFF);  // not a number in every float type
  for (const std::string& key : KeysOf(injection)) {
    const ShardedTensor& tensor = registered_.registry().tensors().at(key);
    const DeviceMemory* const device = registered_.registry().DeviceOf(tensor).value();
    for (uint64_t at = 0; at < tensor.memory.size_bytes; at += kPieceBytes)
      (void)WriteState(device, static_cast<uint8_t*>(tensor.memory.data) + at, ones.data(),
                       std::min(kPieceBytes, tensor.memory.size_bytes - at));
  }
}

void StateDamage::Flip(const Injection& injection) const {
  for (const std::string& key : KeysOf(injection))
    if (FlipOne(registered_.registry().tensors().at(key))) return;
}

// A high bit of an element that is not zero: the last bit of a moment is gone with the next update's rounding. True: it is
// flipped, or the memory cannot be read.
bool StateDamage::FlipOne(const ShardedTensor& tensor) const {
  const DeviceMemory* const device = registered_.registry().DeviceOf(tensor).value();
  auto* const bytes = static_cast<uint8_t*>(tensor.memory.data);
  const uint64_t element = std::max<uint64_t>(DTypeSize(tensor.dtype), 1);
  const uint64_t count = tensor.memory.size_bytes / element, per_piece = kPieceBytes / element;
  std::vector<uint8_t> piece(per_piece * element);
  for (uint64_t done = 0, at = count / 2; done < count;) {
    const uint64_t here = std::min({per_piece, count - at, count - done});
    KINTSUGI_CHECK(here > 0, "a piece of a tensor without an element");
    if (!ReadState(device, piece.data(), bytes + at * element, here * element).ok()) return true;
    for (uint64_t i = 0; i < here; ++i) {
      uint8_t* const found = &piece[i * element];
      if (std::all_of(found, found + element, [](uint8_t byte) { return byte == 0; })) continue;
      found[element > 1 ? element - 2 : 0] ^= 0x40;
      (void)WriteState(device, bytes + (at + i) * element, found, element);
      return true;
    }
    done += here;
    at = (at + here) % count;
  }
  return false;
}

}  // namespace kintsugi
