// BlockReader: reads the blocks of a checkpoint that an inflow needs, and hands them to it (private).
//
// What: in the order of the files, in batches of about half the buffer: while one batch is copied into place, the next
// is read and its checksums are compared by another thread. Errors: as FileSystem; kDataLoss as ReadStretch; poll's.
// Threads: Run starts one and has joined it when it returns. Memory: `buffer_bytes`, at least two blocks.
#pragma once

#include <functional>
#include <string>

#include "replica/reshard/inflow.h"
#include "replica/resume/catalogue.h"

namespace kintsugi::resume {

class BlockReader {
 public:
  BlockReader(const Catalogue& catalogue, const layout::Metadata& source, std::string folder,
              checkpoint::FileSystem& files, uint64_t buffer_bytes)
      : catalogue_(catalogue),
        source_(source),
        folder_(std::move(folder)),
        files_(files),
        buffer_bytes_(buffer_bytes) {}

  Status Run(reshard::Inflow* inflow, const std::function<Status()>& poll);

  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t buffer_peak_bytes() const { return buffer_peak_bytes_; }

 private:
  // Blocks [first, first + count) of a piece.
  struct Window {
    uint32_t piece = 0;
    uint64_t first = 0, count = 0;
    uint64_t bytes = 0;
  };
  struct Batch {
    size_t first = 0, end = 0;  // of windows_
    std::vector<uint8_t> bytes;
    Status status;
  };

  void List(const reshard::Inflow& inflow);
  // From window `first` on.
  Batch Read(size_t first, std::vector<uint8_t> buffer);
  Status ReadWindow(const Window& window, uint8_t* to);

  const Catalogue& catalogue_;
  const layout::Metadata& source_;
  const std::string folder_;
  checkpoint::FileSystem& files_;
  const uint64_t buffer_bytes_;
  std::vector<Window> windows_;
  std::string open_name_;
  std::unique_ptr<checkpoint::ReadableFile> open_;
  uint64_t bytes_read_ = 0, buffer_peak_bytes_ = 0;
};

}  // namespace kintsugi::resume
