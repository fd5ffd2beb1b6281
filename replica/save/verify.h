// Verify: reads a whole checkpoint and compares every checksum.
//
// Errors: kDataLoss names file, tensor or object, and block of the first damages, and how many there are; what Inspect
// finds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "replica/save/file_system.h"
#include "replica/save/find.h"

namespace kintsugi::checkpoint {

KINTSUGI_EXPORT Status Verify(const std::string& path, FileSystem& files = PosixFileSystem());

// Reads the bytes of `extent` block by block into `data`, or into a small buffer of its own where that is null, and
// compares every block. `what` ("tensor 'w'") is for messages; `poll` is asked between two reads, its error ends them.
KINTSUGI_EXPORT Status ReadExtent(ReadableFile& file, const std::string& path, const Extent& extent,
                                  const std::string& what, uint8_t* data, const std::function<Status()>& poll);
// The same, each block handed to `take`, once it was compared, with its place in the extent; its error ends the
// reading. `buffer` has room for a block.
using TakeBlock = std::function<Status(uint64_t offset, const uint8_t* block, uint64_t size_bytes)>;
Status ReadExtent(ReadableFile& file, const std::string& path, const Extent& extent, const std::string& what,
                  uint8_t* buffer, const TakeBlock& take, const std::function<Status()>& poll);

// Blocks [first, first + count) of the extent into `data`, in one read, each compared. REQUIRES: they are there.
KINTSUGI_EXPORT Status ReadStretch(ReadableFile& file, const std::string& path, const Extent& extent, uint64_t first,
                                   uint64_t count, const std::string& what, uint8_t* data);

}  // namespace kintsugi::checkpoint
