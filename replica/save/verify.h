// Verify: reads a whole checkpoint and compares every checksum, and each tensor's sum (tensor_sums.h).
//
// Errors: kDataLoss names file, tensor or object, and block of the first damages, and how many there are; what Inspect
// finds.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "replica/save/arrived_sums.h"
#include "replica/save/file_system.h"
#include "replica/save/find.h"

namespace kintsugi::checkpoint {

KINTSUGI_EXPORT Status Verify(const std::string& path, FileSystem& files = PosixFileSystem());

// Reads the bytes of `extent` block by block into `data`, or into a small buffer of its own where that is null, and
// compares every block. `what` ("tensor 'w'") is for messages; `poll` is asked between two reads, its error ends them;
// `arrived`, where it is not empty, sees each part in the near cache, perhaps before its block was compared.
KINTSUGI_EXPORT Status ReadExtent(ReadableFile& file, const std::string& path, const Extent& extent,
                                  const std::string& what, uint8_t* data, const std::function<Status()>& poll,
                                  const Arrived& arrived = {});
// The same, each block handed to `take`, once it was compared, with its place in the extent; its error ends the
// reading. `buffer` has room for a block.
using TakeBlock = std::function<Status(uint64_t offset, const uint8_t* block, uint64_t size_bytes)>;
Status ReadExtent(ReadableFile& file, const std::string& path, const Extent& extent, const std::string& what,
                  uint8_t* buffer, const TakeBlock& take, const std::function<Status()>& poll);

// Bytes of the file from `offset` on into `pieces`, one behind the other.
KINTSUGI_EXPORT Status ReadPieces(ReadableFile& file, uint64_t offset, std::span<const std::span<uint8_t>> pieces);
// The extent's bytes from `begin` on into `pieces`, one behind the other, compared in parts that stay in the near cache:
// by the checksums of its sub-blocks where it has them, else of its blocks. `arrived` as above.
// Pieces may lie over one another: each is compared, in parts of a sub-block, before the next one is read.
// REQUIRES: the pieces together are whole blocks, or whole sub-blocks where the extent has their checksums.
KINTSUGI_EXPORT Status ReadStretch(ReadableFile& file, const std::string& path, const Extent& extent, uint64_t begin,
                                   const std::string& what, std::span<const std::span<uint8_t>> pieces,
                                   const Arrived& arrived = {});

}  // namespace kintsugi::checkpoint
