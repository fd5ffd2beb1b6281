// Memory of all ranks for tests of Execute: filled by global element numbers, compared element by element, with guard
// bytes around every shard.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

#include "replica/plan/planner.h"
#include "replica/reshard/in_process.h"
#include "tests/unit/plan/slow_plan.h"

namespace kintsugi::reshard {

using layout::KeyMeta;
using layout::Metadata;
using layout::PieceView;
using plan::MakePlan;

inline constexpr size_t kGuardBytes = 48;
inline constexpr uint8_t kGuard = 0xA5;
// What lies in a target before anything arrives.
inline constexpr uint8_t kUnwritten = 0xEE;

// Memory between guards, at any alignment.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t size_bytes, size_t shift = 0)
      : bytes_(size_bytes + 2 * kGuardBytes, kGuard), at_(kGuardBytes - shift % 16), size_bytes_(size_bytes) {
    std::memset(data(), kUnwritten, size_bytes);
  }
  uint8_t* data() { return bytes_.data() + at_; }
  Memory memory() { return {.data = data(), .size_bytes = size_bytes_}; }
  bool guards_hold() const {
    for (size_t i = 0; i < bytes_.size(); ++i)
      if ((i < at_ || i >= at_ + size_bytes_) && bytes_[i] != kGuard) return false;
    return true;
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t at_, size_bytes_;
};

// The bytes of a global element: every element of every key has its own.
inline void FillElement(uint32_t key, int64_t element, uint64_t element_bytes, uint8_t* to) {
  uint64_t word = (static_cast<uint64_t>(element) * 31 + key + 1) * 0x9E3779B97F4A7C15u;
  for (uint64_t i = 0; i < element_bytes; ++i) to[i] = static_cast<uint8_t>((word ^ (word >> 29)) >> (8 * (i % 8)));
}

// All pieces of all ranks of one layout.
class WorldMemory {
 public:
  std::map<std::pair<int32_t, uint32_t>, std::vector<std::unique_ptr<GuardedMemory>>> pieces;  // by rank and piece

  // One memory for each holder, so several where a rank lists a piece several times.
  explicit WorldMemory(const Metadata& metadata) {
    for (const KeyMeta& key : metadata.keys)
      for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
        const PieceView piece = metadata.Piece(key, i);
        const size_t bytes = plan::ElementsOf(key, piece).size() * DTypeSize(key.dtype);
        for (const layout::Holder& holder : piece.holders)
          pieces[{holder.rank, i}].push_back(
              std::make_unique<GuardedMemory>(bytes, i + static_cast<uint32_t>(holder.rank)));
      }
  }

  void Fill(const Metadata& metadata) {
    ForEach(metadata,
            [](uint32_t key, int64_t element, uint64_t size, uint8_t* at) { FillElement(key, element, size, at); });
  }

  // Every element is there, and nothing around it was touched.
  void ExpectFilled(const Metadata& metadata) {
    ForEach(metadata, [](uint32_t key, int64_t element, uint64_t size, uint8_t* at) {
      uint8_t expected[16];
      FillElement(key, element, size, expected);
      ASSERT_EQ(std::memcmp(at, expected, size), 0) << "key " << key << " element " << element;
    });
    ExpectGuards();
  }
  void ExpectGuards() const {
    for (const auto& [place, memories] : pieces)
      for (const auto& memory : memories)
        ASSERT_TRUE(memory->guards_hold()) << "rank " << place.first << " piece " << place.second;
  }

 private:
  template <typename Body>
  void ForEach(const Metadata& metadata, const Body& body) {
    for (uint32_t k = 0; k < metadata.keys.size(); ++k) {
      const KeyMeta& key = metadata.keys[k];
      const uint64_t size = DTypeSize(key.dtype);
      for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
        const auto elements = plan::ElementsOf(key, metadata.Piece(key, i));
        for (const layout::Holder& holder : metadata.Piece(key, i).holders)
          for (const auto& memory : pieces.at({holder.rank, i}))
            for (size_t e = 0; e < elements.size(); ++e) body(k, elements[e], size, memory->data() + e * size);
      }
    }
  }
};

// Plain bindings of one rank.
inline Bindings BindPlain(const Metadata& source, WorldMemory& held, const Metadata& target, WorldMemory& wanted,
                          int32_t rank) {
  Bindings bindings;
  for (auto& [place, memories] : held.pieces)
    if (place.first == rank) bindings.sources[place.second] = memories[0]->memory();
  for (const KeyMeta& key : target.keys)
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
      const auto found = wanted.pieces.find({rank, i});
      if (found == wanted.pieces.end()) continue;
      for (const auto& memory : found->second)
        bindings.targets[i].copies.push_back(
            {PlainDestination(target.Piece(key, i), key.dtype, source.Find(key.name)[0].dtype, memory->memory())});
    }
  return bindings;
}

inline std::vector<Bindings> BindAll(const Metadata& source, WorldMemory& held, const Metadata& target,
                                     WorldMemory& wanted, int32_t ranks) {
  std::vector<Bindings> all;
  for (int32_t rank = 0; rank < ranks; ++rank) all.push_back(BindPlain(source, held, target, wanted, rank));
  return all;
}

}  // namespace kintsugi::reshard
