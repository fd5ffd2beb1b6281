#include "runtime/agent/object_slots.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "runtime/base/check.h"

namespace kintsugi {

// Followed by its bytes.
struct ObjectSlots::Slot {
  static constexpr uint64_t kMagic = 0x6b74736f626a6374;
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> step_and_one;  // 0: none
  std::atomic<uint64_t> size_bytes;
  std::atomic<uint64_t> version;  // the greater one was written later
  std::atomic<uint64_t> ahead;
};

namespace {

constexpr uint64_t kSlots = 2;
constexpr uint64_t kBytesMin = 4096;

}  // namespace

uint64_t ObjectSlots::Capacity() const { return memory_.memory().size_bytes / kSlots - sizeof(Slot); }

ObjectSlots::Slot* ObjectSlots::At(uint64_t number) const {
  auto* begin = static_cast<uint8_t*>(memory_.memory().data);
  return reinterpret_cast<Slot*>(begin + number * (sizeof(Slot) + Capacity()));
}

ObjectSlots::Slot* ObjectSlots::For(Step step) const {
  Slot *const first = At(0), *const second = At(1);
  for (Slot* slot : {first, second})
    if (slot->step_and_one.load() > step.value() + 1) return slot;
  return first->version.load() <= second->version.load() ? first : second;
}

const ObjectSlots::Slot* ObjectSlots::Find(Step step) const {
  const Slot* found = nullptr;
  for (const Slot* slot : {At(0), At(1)})
    if (slot->step_and_one.load() == step.value() + 1 && (!found || found->version.load() < slot->version.load()))
      found = slot;
  return found;
}

Result<ObjectSlots> ObjectSlots::Create(uint64_t bytes_per_step) {
  uint64_t capacity = kBytesMin;
  while (capacity < bytes_per_step) capacity *= 2;
  KINTSUGI_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Allocate(kSlots * (sizeof(Slot) + capacity)));
  ObjectSlots slots(std::move(memory));
  for (uint64_t i = 0; i < kSlots; ++i) slots.At(i)->magic.store(Slot::kMagic);
  return slots;
}

Result<ObjectSlots> ObjectSlots::Open(UniqueFd file) {
  KINTSUGI_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Open(std::move(file)));
  const uint64_t size = memory.memory().size_bytes;
  const Status refused(StatusCode::kInvalidArgument, "the memory file that was held has no mirrored objects in it");
  if (size < kSlots * (sizeof(Slot) + kBytesMin) || size % (kSlots * alignof(Slot)) != 0) return refused;
  ObjectSlots slots(std::move(memory));
  for (uint64_t i = 0; i < kSlots; ++i)
    if (slots.At(i)->magic.load() != Slot::kMagic) return refused;
  return slots;
}

void ObjectSlots::Fill(Step step, const std::vector<uint8_t>& bytes, bool ahead) {
  KINTSUGI_CHECK(bytes.size() <= Capacity(), "more bytes than a slot has");
  Slot* slot = For(step);
  slot->step_and_one.store(0);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  slot->version.store(std::max(At(0)->version.load(), At(1)->version.load()) + 1);
  slot->size_bytes.store(bytes.size());
  slot->ahead.store(ahead);
  if (!bytes.empty()) std::memcpy(reinterpret_cast<uint8_t*>(slot + 1), bytes.data(), bytes.size());
  std::atomic_thread_fence(std::memory_order_seq_cst);
  slot->step_and_one.store(step.value() + 1);
}

Result<bool> ObjectSlots::Write(Step step, const std::vector<uint8_t>& bytes, bool ahead) {
  if (bytes.size() <= Capacity()) {
    Fill(step, bytes, ahead);
    return false;
  }
  KINTSUGI_ASSIGN_OR_RETURN(ObjectSlots larger, Create(bytes.size()));
  if (step.value() > 0)
    if (Result<std::vector<uint8_t>> before = Read(step.Previous()); before.ok())
      larger.Fill(step.Previous(), *before, IsAhead(step.Previous()));
  larger.Fill(step, bytes, ahead);
  *this = std::move(larger);
  return true;
}

bool ObjectSlots::IsAhead(Step step) const {
  const Slot* slot = Find(step);
  return slot && slot->ahead.load() != 0;
}

Result<std::vector<uint8_t>> ObjectSlots::Read(Step step) const {
  const Slot* slot = Find(step);
  if (!slot || slot->size_bytes.load() > Capacity())
    return Status(StatusCode::kNotFound, "no mirrored objects of step " + step.ToString() + " are held");
  const uint64_t size = slot->size_bytes.load();
  const auto* begin = reinterpret_cast<const uint8_t*>(slot + 1);
  return std::vector<uint8_t>(begin, begin + size);
}

}  // namespace kintsugi
