#include "replica/resume/block_reader.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <tuple>

#include "replica/plan/plan.h"
#include "replica/save/verify.h"
#include "runtime/base/check.h"

namespace kintsugi::resume {

using checkpoint::Extent;
using checkpoint::kBlockBytes;
using formats::CatalogPiece;

namespace {

// Fewer bytes than these, between two that are needed, are cheaper read than skipped.
constexpr uint64_t kSkipBytes = 64 << 10;
// A run of fewer bytes is cheaper copied out of the near cache than read into its place by a call of its own.
constexpr uint64_t kRunBytesMin = 16 << 10;
// Fewer bytes than these are cheaper summed up with all of their tensor than by themselves.
constexpr uint64_t kSumBytesMin = 1 << 10;

uint64_t BlockBegin(uint64_t at) { return at / kBlockBytes * kBlockBytes; }

// Reading begins and ends at multiples of these.
uint64_t GranuleOf(const Extent& extent) {
  if (extent.blocks.empty()) return 1;
  return extent.sub_blocks.empty() ? kBlockBytes : checkpoint::kSubBlockBytes;
}

uint64_t WindowBytes(uint64_t buffer_bytes, int threads) {
  KINTSUGI_CHECK(threads > 0, "somebody reads");
  return std::max(BlockBegin(buffer_bytes / static_cast<uint64_t>(threads)), kBlockBytes);
}

}  // namespace

BlockReader::BlockReader(const formats::Catalog& catalog, checkpoint::FileSystem& files, uint64_t buffer_bytes,
                         int threads, checkpoint::ArrivedSums* arrived)
    : catalog_(catalog),
      files_(files),
      window_bytes_(WindowBytes(buffer_bytes, threads)),
      threads_(threads),
      arrived_(arrived) {}

int64_t BlockReader::ElementBytes(uint32_t piece) const {
  const layout::Metadata& metadata = catalog_.metadata();
  return plan::ElementBytes(metadata.keys[metadata.KeyOfPiece(piece)]);
}

uint32_t BlockReader::RegionOf(uint32_t piece) {
  const CatalogPiece& stored = catalog_.PieceOf(piece);
  KINTSUGI_CHECK(stored.file < catalog_.files().size(), "a piece lies in one of its catalog's files");
  const formats::MappedFile& file = *catalog_.files()[stored.file];
  const bool is_whole_file = stored.strides.empty() && stored.blocks.empty();
  if (is_whole_file && region_of_file_[stored.file] != UINT32_MAX) return region_of_file_[stored.file];
  const auto number = static_cast<uint32_t>(regions_.size());
  Region& region = regions_.emplace_back();
  region.extent.file = file.path();
  if (is_whole_file) {
    region_of_file_[stored.file] = number;
    const auto blocks = catalog_.FileBlocks(stored.file);
    region.extent.size_bytes = file.size_bytes();
    region.extent.blocks.assign(blocks.begin(), blocks.end());
    return number;
  }
  region.is_gathered = !stored.strides.empty();
  region.extent.offset = stored.at;
  region.extent.blocks = stored.blocks;
  region.extent.sub_blocks = stored.sub_blocks;
  region.extent.size_bytes = stored.bytes;
  if (!region.is_gathered) return number;
  int64_t elements = 1;
  for (const int64_t length : stored.shape) elements *= length;
  region.extent.size_bytes = static_cast<uint64_t>(elements * ElementBytes(piece));
  region.extent.blocks.clear();
  return number;
}

// A range of elements in takes that, with the blocks around them, fit a window.
void BlockReader::ListTakes(uint32_t piece, const FlatRange& range) {
  const CatalogPiece& stored = catalog_.PieceOf(piece);
  const int64_t element = ElementBytes(piece);
  const uint32_t region = RegionOf(piece);
  const Extent& extent = regions_[region].extent;
  KINTSUGI_CHECK(!stored.strides.empty() || stored.at >= extent.offset,
                 "a piece begins in the region that it is read from");
  const uint64_t base = stored.strides.empty() ? stored.at - extent.offset : 0;
  KINTSUGI_CHECK(0 <= range.start && range.start <= range.stop &&
                     base + static_cast<uint64_t>(range.stop * element) <= extent.size_bytes,
                 "what is read of a piece lies in its region");
  for (int64_t first = range.start; first < range.stop;) {
    const uint64_t begin = base + static_cast<uint64_t>(first * element);
    const uint64_t limit = BlockBegin(begin) + window_bytes_;
    // An element that lies across the limit is the next take's; one that begins just before it is read with one block
    // more.
    const int64_t fit = std::max<int64_t>(1, static_cast<int64_t>(limit - begin) / element);
    const int64_t count = std::min(fit, range.stop - first);
    takes_.push_back({piece, first, count, region, begin, begin + static_cast<uint64_t>(count * element)});
    first += count;
  }
}

void BlockReader::MakeWindows() {
  // In the order of the files: sequential for the disk.
  const auto place = [this](const Take& take) {
    const Extent& extent = regions_[take.region].extent;
    return std::tuple(std::string_view(extent.file), extent.offset + take.begin);
  };
  std::sort(takes_.begin(), takes_.end(), [&](const Take& a, const Take& b) { return place(a) < place(b); });
  for (size_t i = 0; i < takes_.size(); ++i) {
    const Take& take = takes_[i];
    const Region& region = regions_[take.region];
    const uint64_t granule = GranuleOf(region.extent);
    const uint64_t begin = take.begin / granule * granule;
    const uint64_t end = std::min((take.end + granule - 1) / granule * granule, region.extent.size_bytes);
    KINTSUGI_CHECK(begin <= take.begin && take.end <= end, "a window holds its takes whole");
    if (!windows_.empty() && windows_.back().region == take.region && !region.is_gathered) {
      Window& last = windows_.back();
      // Small tensors share blocks.
      if (begin <= last.end + kSkipBytes && std::max(end, last.end) - last.begin <= window_bytes_) {
        last.end = std::max(last.end, end);
        last.end_take = i + 1;
        continue;
      }
    }
    windows_.push_back({take.region, begin, end, i, i + 1});
  }
}

void BlockReader::List(const reshard::Inflow& inflow) {
  KINTSUGI_CHECK(windows_.empty(), "a reader reads once");
  region_of_file_.assign(catalog_.files().size(), UINT32_MAX);
  for (const uint32_t piece : inflow.Pieces()) {
    // A piece's own checksums are over its blocks; those of a file know nothing of where a piece begins.
    const CatalogPiece& stored = catalog_.PieceOf(piece);
    const uint64_t granule = stored.blocks.empty()       ? kSkipBytes
                             : stored.sub_blocks.empty() ? kBlockBytes
                                                         : checkpoint::kSubBlockBytes;
    for (const FlatRange& range : inflow.Needed(piece, static_cast<int64_t>(granule) / ElementBytes(piece)))
      ListTakes(piece, range);
  }
  MakeWindows();
}

// Row-major elements of a piece whose axes have strides of their own.
Status BlockReader::Gather(const Take& take, uint8_t* to) const {
  const CatalogPiece& stored = catalog_.PieceOf(take.piece);
  const auto element = static_cast<size_t>(ElementBytes(take.piece));
  const uint8_t* const data = catalog_.files()[stored.file]->bytes().data() + stored.at;
  const size_t axes = stored.shape.size();
  Shape at(axes);
  int64_t left = take.first, from = 0;
  for (size_t axis = axes; axis-- > 0;) {
    at[axis] = left % stored.shape[axis];
    left /= stored.shape[axis];
    from += at[axis] * stored.strides[axis];
  }
  KINTSUGI_CHECK(left == 0, "what is gathered begins within its piece");
  for (int64_t i = 0; i < take.count; ++i, to += element) {
    std::memcpy(to, data + static_cast<size_t>(from) * element, element);
    for (size_t axis = axes; axis-- > 0;) {
      from += stored.strides[axis];
      if (++at[axis] < stored.shape[axis]) break;
      from -= stored.strides[axis] * stored.shape[axis];
      at[axis] = 0;
    }
  }
  return catalog_.files()[stored.file]->CheckUnchanged();
}

uint64_t BlockReader::PlaceWindow(const Window& window, const reshard::Inflow& inflow, Lane* lane) const {
  lane->runs.clear();
  lane->has_landed.assign(window.end_take - window.first_take, false);
  uint64_t end_before = 0;
  for (size_t t = window.first_take; t < window.end_take; ++t) {
    const Take& take = takes_[t];
    // Bytes that two tensors of a file share (views of one storage) have no one place.
    const bool is_shared = take.begin < end_before || (t + 1 < window.end_take && takes_[t + 1].begin < take.end);
    end_before = std::max(end_before, take.end);
    if (is_shared) continue;
    const auto runs = inflow.RunsOf(take.piece, take.first, take.count, kRunBytesMin);
    if (!runs) continue;
    lane->has_landed[t - window.first_take] = true;
    for (const reshard::Inflow::Run& run : *runs) lane->runs.push_back({take.begin + run.at, run.size_bytes, run.to});
  }
  const bool is_copied = std::find(lane->has_landed.begin(), lane->has_landed.end(), false) != lane->has_landed.end();
  lane->pieces.clear();
  uint64_t at = window.begin, straight = 0;
  const auto buffer_up_to = [&](uint64_t end) {
    // What is copied out of the buffer has the place there that it has in the window. What is read for its checksum alone goes
    // over itself, part by part: the fewer pages are touched, the more of them stay in the near cache.
    while (at < end) {
      const uint64_t size = is_copied ? end - at : std::min(end - at, checkpoint::kSubBlockBytes);
      lane->pieces.emplace_back(lane->buffer.get() + (is_copied ? at - window.begin : 0), size);
      at += size;
    }
  };
  for (const reshard::Inflow::Run& run : lane->runs) {
    KINTSUGI_CHECK(at <= run.at, "runs of a window are read one behind the other");
    buffer_up_to(run.at);
    lane->pieces.emplace_back(run.to, run.size_bytes);
    at += run.size_bytes;
    straight += run.size_bytes;
  }
  buffer_up_to(window.end);
  KINTSUGI_CHECK(at == window.end, "runs and buffer make up the window");
  return straight;
}

Status BlockReader::ReadPlaced(const Window& window, Lane* lane) {
  const Take& take = takes_[window.first_take];
  const Extent& extent = regions_[window.region].extent;
  if (lane->open_name != extent.file || !lane->open) {
    lane->open_name = extent.file;
    KINTSUGI_ASSIGN_OR_RETURN(lane->open, files_.Open(extent.file));
  }
  const layout::Metadata& metadata = catalog_.metadata();
  const std::string what = "tensor '" + metadata.keys[metadata.KeyOfPiece(take.piece)].name + "'";
  if (extent.blocks.empty()) return ReadPieces(*lane->open, extent.offset + window.begin, lane->pieces).Annotate(what);
  // Parts of the buffer are no registered memory.
  return ReadStretch(*lane->open, extent.file, extent, window.begin, what, lane->pieces,
                     arrived_ ? arrived_->Listener() : checkpoint::Arrived());
}

void BlockReader::PlaceTake(const Take& take, const uint8_t* from, reshard::Inflow* inflow) const {
  inflow->Take(take.piece, take.first, take.count, from);
  if (!arrived_) return;
  const auto runs = inflow->RunsOf(take.piece, take.first, take.count, kSumBytesMin);
  if (!runs) return;
  for (const reshard::Inflow::Run& run : *runs) arrived_->Add({run.to, run.size_bytes});
}

Status BlockReader::ReadWindow(const Window& window, reshard::Inflow* inflow, Lane* lane) {
  KINTSUGI_CHECK(window.bytes() <= window_bytes_max_, "a lane's buffer holds a window");
  if (regions_[window.region].is_gathered) {
    lane->has_landed.assign(window.end_take - window.first_take, false);
    KINTSUGI_RETURN_IF_ERROR(Gather(takes_[window.first_take], lane->buffer.get()));
  } else {
    bytes_straight_ += PlaceWindow(window, *inflow, lane);
    KINTSUGI_RETURN_IF_ERROR(ReadPlaced(window, lane));
  }
  for (size_t t = window.first_take; t < window.end_take; ++t) {
    const Take& take = takes_[t];
    if (lane->has_landed[t - window.first_take])
      inflow->Landed(take.piece, take.first, take.count);
    else
      PlaceTake(take, lane->buffer.get() + (take.begin - window.begin), inflow);
  }
  bytes_read_ += window.bytes();
  return Status::Ok();
}

Status BlockReader::ReadWindows(reshard::Inflow* inflow, const std::function<Status()>& poll) {
  Lane lane;
  lane.buffer = std::make_unique_for_overwrite<uint8_t[]>(window_bytes_max_);
  for (size_t i = next_window_++; i < windows_.size() && !failed_; i = next_window_++) {
    KINTSUGI_RETURN_IF_ERROR(poll());
    KINTSUGI_RETURN_IF_ERROR(ReadWindow(windows_[i], inflow, &lane));
  }
  return Status::Ok();
}

// The edge for what is thrown below it: a thread of a trainer's process must not end that.
Status BlockReader::Work(reshard::Inflow* inflow, const std::function<Status()>& poll) {
  Status status;
  try {
    status = ReadWindows(inflow, poll);
  } catch (const std::bad_alloc&) {
    status = {StatusCode::kResourceExhausted, "no memory for a window"};
  } catch (const std::exception& error) {
    status = {StatusCode::kInternal, error.what()};
  }
  if (!status.ok()) failed_ = true;
  return status;
}

Status BlockReader::Run(reshard::Inflow* inflow, const std::function<Status()>& poll) {
  List(*inflow);
  const size_t count = std::min(static_cast<size_t>(threads_), windows_.size());
  for (const Window& window : windows_) window_bytes_max_ = std::max(window_bytes_max_, window.bytes());
  buffer_peak_bytes_ = count * window_bytes_max_;
  std::vector<Status> outcomes(count);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i)
    threads.emplace_back([&, i] { outcomes[i] = Work(inflow, [] { return Status::Ok(); }); });
  if (count > 0) outcomes[0] = Work(inflow, poll);
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) KINTSUGI_RETURN_IF_ERROR(outcome);
  uint64_t wanted = 0;
  for (const Window& window : windows_) wanted += window.bytes();
  KINTSUGI_CHECK(bytes_read_ == wanted, "each window was read once");
  return inflow->Finish();
}

}  // namespace kintsugi::resume
