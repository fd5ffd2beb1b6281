// Zip: the archives that torch writes, read where they lie and laid out before they are written.
//
// What: entries without compression whose data begins at multiples of 64 bytes; 64-bit sizes and offsets where needed.
// Ours rather than libzip or miniz: neither tells where a stored entry's data begins, nor aligns it, and both want to
// copy entries through their own buffers; what is needed here is a directory and three small headers.
// Reading trusts the central directory alone and checks: names that stay inside, entries within the file, and apart from
// every other. What is compressed, encrypted or there twice is listed as such: nobody need use it (programs leave notes of
// theirs in archives of torch). Deflated entries can be unpacked. Bytes behind the end are nobody's.
// Errors: kDataLoss names file, byte and reason; an entry is called a record there, as torch calls it.
// Threads: pure. Source of the format: PKWARE's APPNOTE 6.3, sections 4.3 and 4.5; the padding in the extra field `FB`
// as torch's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/outline.h"
#include "runtime/base/result.h"

namespace kintsugi::formats::zip {

struct Entry {
  std::string name;
  uint64_t at = 0;  // byte of the archive where the data begins
  uint64_t size_bytes = 0;
  uint32_t crc = 0;
  std::string unreadable{};                  // why its bytes are not those of the record
  std::optional<uint64_t> unpacked_bytes{};  // of one that is deflated
};

// kDataLoss where an entry's bytes cannot be used.
Status CheckReadable(const Entry& entry, const std::string& place);
// Whether the writer left sums: torch writes zeros where it was told not to (set_crc32_options).
bool HasSums(const std::vector<Entry>& entries);
// All entries, by name. `place` is the file, `base` where in it the archive begins: for messages.
Result<std::vector<Entry>> ReadDirectory(std::string_view archive, const std::string& place, uint64_t base = 0);
// What all entries hold, one behind the other at multiples of 64 bytes, with the deflated ones unpacked; entries[] lie in it
// afterwards. Those that are still unreadable hold nothing. kDataLoss where one is damaged, kResourceExhausted where they would need
// more than half of the machine's memory.
struct UnpackedBytes {
  std::unique_ptr<uint8_t[]> data;
  uint64_t size_bytes = 0;
};
Result<UnpackedBytes> Unpack(std::string_view archive, std::vector<Entry>* entries, const std::string& place);
uint32_t Crc32(std::string_view bytes);
// kDataLoss where the bytes are not the entry's.
Status CheckCrc(std::string_view archive, const Entry& entry, const std::string& place);

// Lays an archive out, entry after entry, at the end of a file.
class Layer {
 public:
  // Offsets in the archive count from here. `root` stands before every name.
  Layer(OutlineFile* file, std::string root) : file_(file), root_(std::move(root)), first_(file->size_bytes) {}

  void AddBytes(const std::string& name, std::string bytes);
  void AddTensor(const std::string& name, uint32_t tensor, const layout::Box& box, uint64_t element_bytes) {
    AddBoxes(name, {{tensor, box, 0}}, element_bytes);
  }
  // One entry of many boxes, one behind the other, each followed by zeros: a flat buffer.
  struct PaddedBox {
    uint32_t tensor = 0;
    layout::Box box;
    uint64_t zeros = 0;  // bytes behind it
  };
  void AddBoxes(const std::string& name, const std::vector<PaddedBox>& boxes, uint64_t element_bytes);
  // The directory; the archive's length.
  uint64_t Finish();

 private:
  struct LaidEntry {
    std::string name;
    uint64_t header_at = 0, size_bytes = 0;
    uint32_t crc = 0;
    int slot = -1;  // of the file, where the CRC is known only once the data was written
  };
  void AddHeader(LaidEntry entry);

  OutlineFile* const file_;
  const std::string root_;
  const uint64_t first_;  // byte of the file where the archive starts
  uint64_t at_ = 0;       // from the archive's start
  std::vector<LaidEntry> entries_;
};

}  // namespace kintsugi::formats::zip
