// BlockTable: numbers the blocks of a list of items, and finds the bytes of a run of blocks.
//
// Threads: immutable.
// Ownership: refers to the items.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replica/stream/state_stream.h"

namespace kintsugi {

struct BlockRange {
  uint64_t first = 0;
  uint64_t count = 0;
  bool operator==(const BlockRange&) const = default;
};

// Blocks that lie side by side in one item: what travels as one message.
struct BlockRun {
  const StreamItem* item = nullptr;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  BlockRange blocks;
};

class BlockTable {
 public:
  explicit BlockTable(const std::vector<StreamItem>& items);

  uint64_t blocks() const { return first_block_.back(); }
  uint64_t bytes() const { return bytes_; }
  // Cuts a range at the items' borders. REQUIRES: inside [0, blocks()).
  std::vector<BlockRun> Runs(const BlockRange& range) const;
  uint64_t BytesOf(const BlockRange& range) const;
  // "tensor 'key' block 3 of 7": for messages.
  std::string Describe(uint64_t block) const;
  // Over step, block size, keys and sizes.
  uint64_t ManifestDigest(Step step) const;

 private:
  size_t ItemOf(uint64_t block) const;
  const std::vector<StreamItem>& items_;
  std::vector<uint64_t> first_block_;  // of each item, and at the end the number of all
  uint64_t bytes_ = 0;
};

}  // namespace kintsugi
