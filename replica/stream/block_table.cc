#include "replica/stream/block_table.h"

#include <algorithm>

#include "kernels/host_checksum.h"
#include "runtime/base/check.h"

namespace kintsugi {

BlockTable::BlockTable(const std::vector<StreamItem>& items) : items_(items), first_block_{0} {
  for (const StreamItem& item : items) {
    first_block_.push_back(first_block_.back() + (item.memory.size_bytes + kStreamBlockBytes - 1) / kStreamBlockBytes);
    bytes_ += item.memory.size_bytes;
  }
}

size_t BlockTable::ItemOf(uint64_t block) const {
  KINTSUGI_CHECK(block < blocks(), "a block is the table's");
  return static_cast<size_t>(std::upper_bound(first_block_.begin(), first_block_.end(), block) - first_block_.begin()) -
         1;
}

std::vector<BlockRun> BlockTable::Runs(const BlockRange& range) const {
  KINTSUGI_CHECK(range.first <= blocks() && range.count <= blocks() - range.first, "blocks are the table's");
  std::vector<BlockRun> runs;
  for (uint64_t block = range.first; block < range.first + range.count;) {
    const size_t number = ItemOf(block);
    const StreamItem& item = items_[number];
    const uint64_t count = std::min(first_block_[number + 1], range.first + range.count) - block;
    const uint64_t offset = (block - first_block_[number]) * kStreamBlockBytes;
    KINTSUGI_CHECK(count > 0 && offset < item.memory.size_bytes, "a run begins within its item");
    runs.push_back({.item = &item,
                    .offset = offset,
                    .size_bytes = std::min(count * kStreamBlockBytes, item.memory.size_bytes - offset),
                    .blocks = {block, count}});
    block += count;
  }
  return runs;
}

uint64_t BlockTable::BytesOf(const BlockRange& range) const {
  uint64_t bytes = 0;
  for (const BlockRun& run : Runs(range)) bytes += run.size_bytes;
  return bytes;
}

std::string BlockTable::Describe(uint64_t block) const {
  const size_t number = ItemOf(block);
  return "tensor '" + items_[number].key + "' block " + std::to_string(block - first_block_[number]) + " of " +
         std::to_string(first_block_[number + 1] - first_block_[number]);
}

uint64_t BlockTable::ManifestDigest(Step step) const {
  std::vector<uint64_t> words = {step.value(), kStreamBlockBytes};
  for (const StreamItem& item : items_) {
    words.push_back(HashBytes(item.key.data(), item.key.size()));
    words.push_back(item.memory.size_bytes);
  }
  return HashBytes(words.data(), words.size() * sizeof(uint64_t));
}

}  // namespace kintsugi
