// DataWriter: writes a sequence of aligned byte ranges into one file, gathered into large writes, with block checksums.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "callbacks/state/device_memory.h"
#include "replica/save/file_system.h"
#include "replica/save/logical_sum.h"
#include "replica/save/manifest.h"

namespace kintsugi::checkpoint {

// Where the next range begins after one that ends at `offset`.
constexpr uint64_t Aligned(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

class DataWriter {
 public:
  // `poll` is asked between two writes; its error ends the writing.
  DataWriter(std::unique_ptr<WritableFile> file, std::string name, std::function<Status()> poll);

  // Bytes stay where they are, unchanged, until Finish. `sum`, where it is given, is updated with them while they are
  // in the near cache.
  Result<Extent> Append(std::span<const uint8_t> bytes, LogicalSum* sum = nullptr);
  // The same for memory of a device, which goes through a pinned buffer of one write's size.
  Result<Extent> AppendFrom(const DeviceMemory& device, const Memory& memory, LogicalSum* sum);
  // Writes what is left and syncs.
  Status Finish();
  uint64_t size_bytes() const { return end_; }

 private:
  Status Write();
  void Gather(std::span<const uint8_t> bytes);
  // Where the next range of this size goes.
  Extent Begin(uint64_t size_bytes);

  std::unique_ptr<WritableFile> file_;
  const std::string name_;
  const std::function<Status()> poll_;
  std::vector<WritableFile::Piece> pieces_;
  uint64_t pending_ = 0;             // bytes in pieces_, not yet written
  uint64_t end_ = 0;                 // of the file, pieces_ included
  std::shared_ptr<uint8_t> buffer_;  // of what comes from a device
};

}  // namespace kintsugi::checkpoint
