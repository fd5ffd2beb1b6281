// BlockReader: reads the stretches of a checkpoint's files that an inflow needs, and hands them to it (private).
//
// What: in the order of the files, in batches of about half the buffer: while one batch is copied into place, the next
// is read and its checksums are compared by another thread. Checksums are those of the piece, or of the whole file
// where a sidecar has them; either way whole blocks are read. What has none is read as it is. A piece that is stored
// with strides is gathered through the catalog's mapping. Errors: as FileSystem; kDataLoss as ReadStretch; poll's.
// Threads: Run starts one and has joined it when it returns. Memory: `buffer_bytes`, at least two blocks.
#pragma once

#include <functional>
#include <string>

#include "replica/formats/catalog.h"
#include "replica/reshard/inflow.h"
#include "replica/save/file_system.h"
#include "replica/save/manifest.h"

namespace kintsugi::resume {

class BlockReader {
 public:
  BlockReader(const formats::Catalog& catalog, checkpoint::FileSystem& files, uint64_t buffer_bytes)
      : catalog_(catalog), files_(files), buffer_bytes_(buffer_bytes) {}

  Status Run(reshard::Inflow* inflow, const std::function<Status()>& poll);

  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t buffer_peak_bytes() const { return buffer_peak_bytes_; }

 private:
  // Elements [first, first + count) of a piece.
  struct Take {
    uint32_t piece = 0;
    int64_t first = 0, count = 0;
    uint32_t region = 0;
    uint64_t begin = 0, end = 0;  // bytes of the region
  };
  // What is read at once: bytes of one region that hold some takes, one behind the other.
  struct Window {
    uint32_t region = 0;
    uint64_t begin = 0, end = 0;
    size_t first_take = 0, end_take = 0;
    uint64_t bytes() const { return end - begin; }
  };
  struct Batch {
    size_t first = 0, end = 0;  // of windows_
    std::vector<uint8_t> bytes;
    Status status;
  };

  void List(const reshard::Inflow& inflow);
  uint32_t RegionOf(uint32_t piece);
  void ListTakes(uint32_t piece, const FlatRange& range);
  void MakeWindows();
  int64_t ElementBytes(uint32_t piece) const;
  // From window `first` on.
  Batch Read(size_t first, std::vector<uint8_t> buffer);
  Status ReadWindow(const Window& window, uint8_t* to);
  Status Gather(const Take& take, uint8_t* to) const;

  const formats::Catalog& catalog_;
  checkpoint::FileSystem& files_;
  const uint64_t buffer_bytes_;
  // A run of bytes with checksums of its own: a piece, or a file. Of a piece with strides: a pretended one, dense.
  struct Region {
    checkpoint::Extent extent;
    bool is_gathered = false;
  };
  std::vector<Region> regions_;
  std::vector<uint32_t> region_of_file_;
  std::vector<Take> takes_;
  std::vector<Window> windows_;
  std::string open_name_;
  std::unique_ptr<checkpoint::ReadableFile> open_;
  uint64_t bytes_read_ = 0, buffer_peak_bytes_ = 0;
};

}  // namespace kintsugi::resume
