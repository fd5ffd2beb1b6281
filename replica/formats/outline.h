// Outline: the files that a format makes of a state, byte for byte, before one of them is written.
//
// What: each file is a row of segments, one behind the other: bytes that are known already (headers, pickles), tensor
// boxes, dense and row-major, and late bytes whose length is known and whose content is a checksum of what stands
// before them (a zip's descriptors and directory). Files that depend on all the others (an index, a manifest) come
// last.
// Units: bytes.
// Threads: plain data.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replica/formats/catalog.h"
#include "replica/save/checksum.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {

struct Segment {
  enum class Kind : uint8_t { kBytes, kTensor, kLate };
  Kind kind = Kind::kBytes;
  uint64_t size_bytes = 0;
  std::string bytes;    // kBytes
  uint32_t tensor = 0;  // kTensor: number in the content, ...
  layout::Box box;      // ... which part of it, ...
  int crc = -1;         // ... and, of bytes too, the slot of the CRC-32 in the file, -1: none is taken
  std::function<std::string(std::span<const uint32_t> crcs)> late;
};

// What is known of a data file once it is written.
struct WrittenFile {
  std::string name;
  uint64_t size_bytes = 0;
  std::vector<checkpoint::Checksum> blocks;  // of the file
  // Of each segment, where they were asked for.
  std::vector<uint64_t> segment_bytes;
  std::vector<std::vector<checkpoint::Checksum>> segment_blocks, segment_sub_blocks;
  std::vector<uint64_t> segment_sums;  // what a tensor's box adds to its sum (replica/save/logical_sum.h); else 0
};

struct OutlineFile {
  std::string name;  // within the folder, perhaps with folders of its own; empty: the destination itself is the file
  std::vector<Segment> segments;
  int crc_slots = 0;
  bool wants_segment_blocks = false;
  // Instead of segments: what is written once all files before it are there.
  std::function<Result<std::string>(std::span<const WrittenFile> before)> content;

  uint64_t size_bytes = 0;  // of all segments; the methods below keep it
  void AddBytes(std::string bytes, int crc = -1) {
    Segment segment;
    segment.size_bytes = bytes.size();
    segment.crc = crc;
    segment.bytes = std::move(bytes);
    size_bytes += segment.size_bytes;
    segments.push_back(std::move(segment));
  }
  // `element_bytes` is the size of one element of the tensor.
  void AddTensor(uint32_t tensor, const layout::Box& box, uint64_t element_bytes, int crc = -1) {
    const auto volume = Volume(box);
    KINTSUGI_CHECK(element_bytes > 0 && volume && static_cast<uint64_t>(*volume) <= INT64_MAX / element_bytes,
                   "'" + name + "': " + Describe(box) + " of tensor " + std::to_string(tensor) + ", each element of " +
                       std::to_string(element_bytes) + " bytes, has no length");
    KINTSUGI_CHECK(crc < crc_slots,
                   "'" + name + "': a CRC in slot " + std::to_string(crc) + " of " + std::to_string(crc_slots));
    Segment segment;
    segment.kind = Segment::Kind::kTensor;
    segment.size_bytes = static_cast<uint64_t>(*volume) * element_bytes;
    segment.tensor = tensor;
    segment.box = box;
    segment.crc = crc;
    size_bytes += segment.size_bytes;
    segments.push_back(std::move(segment));
  }
  void AddLate(uint64_t size, std::function<std::string(std::span<const uint32_t>)> late) {
    KINTSUGI_CHECK(late != nullptr, "'" + name + "': nothing makes its " + std::to_string(size) + " late bytes");
    Segment segment;
    segment.kind = Segment::Kind::kLate;
    segment.size_bytes = size;
    segment.late = std::move(late);
    size_bytes += size;
    segments.push_back(std::move(segment));
  }
};

struct Outline {
  bool is_folder = true;
  std::vector<OutlineFile> files;  // data: any order, side by side
  std::vector<OutlineFile> marks;  // one after the other, when the data files are on the disk
  std::vector<uint32_t> told;      // tensors that no file holds, for what they say stands elsewhere
  std::vector<std::string> notes;  // what a person should know
};

}  // namespace kintsugi::formats
