#include "runtime/agent/object_slots.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
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
// Objects from this size on seldom change their size: before all others they stay where they lie.
constexpr uint64_t kLarge = 64 << 10;

struct Frame {
  int32_t rank = 0;
  uint32_t key_bytes = 0;
  uint64_t size_bytes = 0;
};

struct Piece {
  Rank rank;
  const MirroredObject* object;
};

std::vector<Piece> PiecesOf(const std::vector<RankObjects>& known) {
  std::vector<Piece> pieces;
  for (const RankObjects& of_rank : known)
    for (const MirroredObject& object : of_rank.objects) pieces.push_back({of_rank.rank, &object});
  std::stable_partition(pieces.begin(), pieces.end(),
                        [](const Piece& piece) { return piece.object->bytes->size() >= kLarge; });
  return pieces;
}

uint64_t SizeOf(const std::vector<Piece>& pieces) {
  uint64_t size = 0;
  for (const Piece& piece : pieces) size += sizeof(Frame) + piece.object->key.size() + piece.object->bytes->size();
  return size;
}

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

void ObjectSlots::Fill(Step step, const std::vector<RankObjects>& known, bool ahead) {
  const std::vector<Piece> pieces = PiecesOf(known);
  KINTSUGI_CHECK(SizeOf(pieces) <= Capacity(), "more bytes than a slot has");
  Slot* slot = For(step);
  slot->step_and_one.store(0);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  slot->version.store(std::max(At(0)->version.load(), At(1)->version.load()) + 1);
  slot->size_bytes.store(SizeOf(pieces));
  slot->ahead.store(ahead);
  std::vector<Written>& written = written_[slot == At(0) ? 0 : 1];
  std::vector<Written> now;
  auto* const begin = reinterpret_cast<uint8_t*>(slot + 1);
  uint64_t at = 0;
  auto before = written.begin();
  for (const Piece& piece : pieces) {
    const Frame frame{piece.rank.value(), static_cast<uint32_t>(piece.object->key.size()), piece.object->bytes->size()};
    std::memcpy(begin + at, &frame, sizeof frame);
    std::memcpy(begin + at + sizeof frame, piece.object->key.data(), frame.key_bytes);
    at += sizeof frame + frame.key_bytes;
    while (before != written.end() && before->offset < at) ++before;
    const bool is_there = before != written.end() && before->offset == at && before->bytes == piece.object->bytes;
    if (!is_there && frame.size_bytes > 0) std::memcpy(begin + at, piece.object->bytes->data(), frame.size_bytes);
    now.push_back({at, piece.object->bytes});
    at += frame.size_bytes;
  }
  written = std::move(now);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  slot->step_and_one.store(step.value() + 1);
}

Result<bool> ObjectSlots::Write(Step step, const std::vector<RankObjects>& known, bool ahead) {
  const uint64_t size = SizeOf(PiecesOf(known));
  if (size <= Capacity()) {
    Fill(step, known, ahead);
    return false;
  }
  KINTSUGI_ASSIGN_OR_RETURN(ObjectSlots larger, Create(size));
  if (step.value() > 0)
    if (Result<std::vector<RankObjects>> before = Read(step.Previous()); before.ok())
      larger.Fill(step.Previous(), *before, IsAhead(step.Previous()));
  larger.Fill(step, known, ahead);
  *this = std::move(larger);
  return true;
}

bool ObjectSlots::IsAhead(Step step) const {
  const Slot* slot = Find(step);
  return slot && slot->ahead.load() != 0;
}

Result<std::vector<RankObjects>> ObjectSlots::Read(Step step) const {
  const Slot* slot = Find(step);
  if (!slot || slot->size_bytes.load() > Capacity())
    return Status(StatusCode::kNotFound, "no mirrored objects of step " + step.ToString() + " are held");
  const uint64_t size = slot->size_bytes.load();
  const auto* begin = reinterpret_cast<const uint8_t*>(slot + 1);
  const Status damaged(StatusCode::kDataLoss,
                       "the mirrored objects of step " + step.ToString() + " that are held end within one");
  std::map<Rank, std::map<std::string, SharedBytes>> by_rank;
  for (uint64_t at = 0; at < size;) {
    Frame frame;
    if (size - at < sizeof frame) return damaged;
    std::memcpy(&frame, begin + at, sizeof frame);
    at += sizeof frame;
    if (size - at < frame.key_bytes || size - at - frame.key_bytes < frame.size_bytes) return damaged;
    std::string key(reinterpret_cast<const char*>(begin + at), frame.key_bytes);
    at += frame.key_bytes;
    by_rank[Rank(frame.rank)][std::move(key)] =
        std::make_shared<const std::vector<uint8_t>>(begin + at, begin + at + frame.size_bytes);
    at += frame.size_bytes;
  }
  std::vector<RankObjects> known;
  for (auto& [rank, objects] : by_rank) {
    known.push_back({rank, {}});
    for (auto& [key, bytes] : objects) known.back().objects.push_back({key, std::move(bytes)});
  }
  return known;
}

}  // namespace kintsugi
