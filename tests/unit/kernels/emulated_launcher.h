// A TableLauncher that runs the device kernels' bodies on the CPU: every tile, thread by thread.
//
// What: it shows that tables, tiles and bodies are right without a device. It shows nothing about launches, reductions,
// memory order or speed. It takes only memory at `alignment` of words, as a device does, since the sanitizers watch it.
#pragma once

#include <algorithm>
#include <memory>

#include "kernels/table_kernels.h"

namespace kintsugi::internal {

class EmulatedLauncher final : public TableLauncher {
 public:
  std::string_view kind() const override { return "emulated"; }

  Status Copy(const MoveTable<FlatMove>& table, const SumTarget& target, KernelStream) const override {
    return CopyMoves(table, target);
  }
  Status Copy(const MoveTable<DeepMove>& table, const SumTarget& target, KernelStream) const override {
    return CopyMoves(table, target);
  }
  Status Cast(ElementType to, ElementType from, const MoveTable<FlatMove>& table, KernelStream) const override {
    return CastMoves(to, from, table);
  }
  Status Cast(ElementType to, ElementType from, const MoveTable<DeepMove>& table, KernelStream) const override {
    return CastMoves(to, from, table);
  }

  Status Start(const SumTarget& target, uint64_t size_bytes, uint64_t* index, KernelStream) const override {
    const uint64_t block_bytes = uint64_t{1} << target.block_shift;
    for (uint64_t block = 0; target.sums && block < SumBlocks(size_bytes, block_bytes); ++block)
      target.sums[block] = StartOfSum(block, size_bytes, block_bytes);
    if (index) *index = kNoDifference;
    return Status::Ok();
  }

  Status Sum(const Range& range, const SumTarget& target, KernelStream) const override {
    const uint64_t mask = (uint64_t{1} << target.block_shift) - 1;
    ForTiles(range.tiles(), [&](uint64_t tile, uint32_t thread) {
      target.sums[tile * range.tile_bytes() >> target.block_shift] += SumTile(range, tile, thread, mask);
    });
    return Status::Ok();
  }

  Status Compare(const Range& range, uint64_t* index, KernelStream) const override {
    ForTiles(range.tiles(),
             [&](uint64_t tile, uint32_t thread) { *index = std::min(*index, CompareTile(range, tile, thread)); });
    return Status::Ok();
  }

  Status CompareValues(const uint64_t* a, const uint64_t* b, uint64_t count, uint64_t* index,
                       KernelStream) const override {
    for (uint64_t i = 0; i < count; ++i)
      if (a[i] != b[i]) *index = std::min(*index, i);
    return Status::Ok();
  }

 private:
  // Backwards: nothing may depend on the order.
  template <typename Body>
  static void ForTiles(uint64_t tiles, const Body& body) {
    for (uint64_t tile = tiles; tile-- > 0;)
      for (uint32_t thread = kTileThreads; thread-- > 0;) body(tile, thread);
  }

  template <typename MoveType>
  static Status CopyMoves(const MoveTable<MoveType>& table, const SumTarget& target) {
    ForTiles(table.tiles, [&](uint64_t tile64, uint32_t thread) {
      const auto tile = static_cast<uint32_t>(tile64);
      const MoveType& move = table.move[FindMove(table, tile)];
      if (!target.sums) {
        CopyTile<false>(move, tile, thread, 0);
        return;
      }
      const TileSums sums = CopyTile<true>(move, tile, thread, target.block_shift);
      const uint64_t block = FirstBlock(move, tile, target.block_shift);
      target.sums[block] += sums.first;
      if (sums.second != 0) target.sums[block + 1] += sums.second;
    });
    return Status::Ok();
  }

  template <typename MoveType>
  static Status CastMoves(ElementType to, ElementType from, const MoveTable<MoveType>& table) {
    ForFloatPair(to, from, [&]<typename To, typename From>() {
      ForTiles(table.tiles, [&](uint64_t tile64, uint32_t thread) {
        const auto tile = static_cast<uint32_t>(tile64);
        CastTile<To, From>(table.move[FindMove(table, tile)], tile, thread);
      });
    });
    return Status::Ok();
  }
};

}  // namespace kintsugi::internal
