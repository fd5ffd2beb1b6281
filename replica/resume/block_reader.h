// BlockReader: reads the stretches of a checkpoint's files that an inflow needs, into their places (private).
//
// What: in the order of the files, in windows, several at once. Bytes that go to one place as they are, in runs that
// are long enough, are read there and nowhere else; the rest of a window (what lies between, what is cast, gathered or
// wanted twice) passes through a buffer that stays in the near cache. Checksums are those of the piece, or of the whole
// file where a sidecar has them; either way whole blocks are read, and compared where they have arrived. What has none
// is read as it is. A piece that is stored with strides is gathered through the catalog's mapping.
// Errors: as FileSystem; kDataLoss as ReadStretch; poll's. What was read before is then in its place: the state is
// undefined.
// Threads: Run starts `threads` - 1 and has joined them when it returns; poll is called by the caller's.
// Memory: `buffer_bytes` in all, at least a block for each thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replica/formats/catalog.h"
#include "replica/reshard/inflow.h"
#include "replica/save/arrived_sums.h"
#include "replica/save/file_system.h"
#include "replica/save/manifest.h"

namespace kintsugi::resume {

class BlockReader {
 public:
  // `arrived` is told of memory that was filled, in runs that are long enough; null: nobody is.
  BlockReader(const formats::Catalog& catalog, checkpoint::FileSystem& files, uint64_t buffer_bytes, int threads,
              checkpoint::ArrivedSums* arrived = nullptr);

  Status Run(reshard::Inflow* inflow, const std::function<Status()>& poll);

  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t bytes_straight() const { return bytes_straight_; }  // of those: into their places
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
  void List(const reshard::Inflow& inflow);
  uint32_t RegionOf(uint32_t piece);
  void ListTakes(uint32_t piece, const FlatRange& range);
  void MakeWindows();
  int64_t ElementBytes(uint32_t piece) const;
  // Takes windows until there are none, or one of the threads has failed.
  Status Work(reshard::Inflow* inflow, const std::function<Status()>& poll);
  Status ReadWindows(reshard::Inflow* inflow, const std::function<Status()>& poll);
  // What one thread keeps from window to window.
  struct Lane {
    std::unique_ptr<uint8_t[]> buffer;
    std::string open_name;
    std::unique_ptr<checkpoint::ReadableFile> open;
    std::vector<reshard::Inflow::Run> runs;  // of a window, in order, by its region's bytes
    std::vector<std::span<uint8_t>> pieces;  // of a window, in order: places and parts of the buffer
    std::vector<bool> has_landed;            // by take of the window
  };
  Status ReadWindow(const Window& window, reshard::Inflow* inflow, Lane* lane);
  // Into lane->pieces; bytes that go straight to their places.
  uint64_t PlaceWindow(const Window& window, const reshard::Inflow& inflow, Lane* lane) const;
  Status ReadPlaced(const Window& window, Lane* lane);
  // Out of the buffer into its places.
  void PlaceTake(const Take& take, const uint8_t* from, reshard::Inflow* inflow) const;
  Status Gather(const Take& take, uint8_t* to) const;

  const formats::Catalog& catalog_;
  checkpoint::FileSystem& files_;
  const uint64_t window_bytes_;  // at least a block
  const int threads_;
  checkpoint::ArrivedSums* const arrived_;
  // A run of bytes with checksums of its own: a piece, or a file. Of a piece with strides: a pretended one, dense.
  struct Region {
    checkpoint::Extent extent;
    bool is_gathered = false;
  };
  std::vector<Region> regions_;
  std::vector<uint32_t> region_of_file_;
  std::vector<Take> takes_;
  std::vector<Window> windows_;
  std::atomic<size_t> next_window_{0};
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> bytes_read_{0}, bytes_straight_{0};
  uint64_t window_bytes_max_ = 0, buffer_peak_bytes_ = 0;
};

}  // namespace kintsugi::resume
