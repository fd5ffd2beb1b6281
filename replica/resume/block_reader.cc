#include "replica/resume/block_reader.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <tuple>

#include "replica/plan/plan.h"
#include "replica/save/verify.h"

namespace kintsugi::resume {

using checkpoint::kBlockBytes;
using formats::CatalogPiece;

namespace {

// Fewer bytes than these, between two that are needed, are cheaper read than skipped.
constexpr uint64_t kSkipBytes = 64 << 10;

uint64_t BlockBegin(uint64_t at) { return at / kBlockBytes * kBlockBytes; }

}  // namespace

int64_t BlockReader::ElementBytes(uint32_t piece) const {
  const layout::Metadata& metadata = catalog_.metadata();
  return plan::ElementBytes(metadata.keys[metadata.KeyOfPiece(piece)]);
}

uint32_t BlockReader::RegionOf(uint32_t piece) {
  const CatalogPiece& stored = catalog_.PieceOf(piece);
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
  region.extent.size_bytes = stored.bytes;
  if (!region.is_gathered) return number;
  int64_t elements = 1;
  for (const int64_t length : stored.shape) elements *= length;
  region.extent.size_bytes = static_cast<uint64_t>(elements * ElementBytes(piece));
  region.extent.blocks.clear();
  return number;
}

// A range of elements in takes that, with the blocks around them, fit half the buffer.
void BlockReader::ListTakes(uint32_t piece, const FlatRange& range) {
  const CatalogPiece& stored = catalog_.PieceOf(piece);
  const int64_t element = ElementBytes(piece);
  const uint32_t region = RegionOf(piece);
  const uint64_t base = stored.strides.empty() ? stored.at - regions_[region].extent.offset : 0;
  const uint64_t bytes_max = std::max(BlockBegin(buffer_bytes_ / 2), kBlockBytes);
  for (int64_t first = range.start; first < range.stop;) {
    const uint64_t begin = base + static_cast<uint64_t>(first * element);
    const uint64_t limit = BlockBegin(begin) + bytes_max;
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
    const checkpoint::Extent& extent = regions_[take.region].extent;
    return std::tuple(std::string_view(extent.file), extent.offset + take.begin);
  };
  std::sort(takes_.begin(), takes_.end(), [&](const Take& a, const Take& b) { return place(a) < place(b); });
  const uint64_t bytes_max = std::max(BlockBegin(buffer_bytes_ / 2), kBlockBytes);
  for (size_t i = 0; i < takes_.size(); ++i) {
    const Take& take = takes_[i];
    const Region& region = regions_[take.region];
    uint64_t begin = take.begin, end = take.end;
    if (!region.extent.blocks.empty()) {
      begin = BlockBegin(begin);
      end = std::min(BlockBegin(end + kBlockBytes - 1), region.extent.size_bytes);
    }
    if (!windows_.empty() && windows_.back().region == take.region && !region.is_gathered) {
      Window& last = windows_.back();
      // Small tensors share blocks.
      if (begin <= last.end + kSkipBytes && std::max(end, last.end) - last.begin <= bytes_max) {
        last.end = std::max(last.end, end);
        last.end_take = i + 1;
        continue;
      }
    }
    windows_.push_back({take.region, begin, end, i, i + 1});
  }
}

void BlockReader::List(const reshard::Inflow& inflow) {
  region_of_file_.assign(catalog_.files().size(), UINT32_MAX);
  for (const uint32_t piece : inflow.Pieces()) {
    // A piece's own checksums are over its blocks; those of a file know nothing of where a piece begins.
    const uint64_t granule = catalog_.PieceOf(piece).blocks.empty() ? kSkipBytes : kBlockBytes;
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

Status BlockReader::ReadWindow(const Window& window, uint8_t* to) {
  const Region& region = regions_[window.region];
  const Take& take = takes_[window.first_take];
  if (region.is_gathered) return Gather(take, to);
  const checkpoint::Extent& extent = region.extent;
  if (open_name_ != extent.file || !open_) {
    open_name_ = extent.file;
    KINTSUGI_ASSIGN_OR_RETURN(open_, files_.Open(extent.file));
  }
  const layout::Metadata& metadata = catalog_.metadata();
  const std::string what = "tensor '" + metadata.keys[metadata.KeyOfPiece(take.piece)].name + "'";
  if (extent.blocks.empty()) return open_->Read(extent.offset + window.begin, to, window.bytes()).Annotate(what);
  return ReadStretch(*open_, extent.file, extent, window.begin / kBlockBytes, checkpoint::BlockCount(window.bytes()),
                     what, to);
}

BlockReader::Batch BlockReader::Read(size_t first, std::vector<uint8_t> buffer) {
  Batch batch{first, first, std::move(buffer), Status::Ok()};
  uint64_t size = 0;
  for (; batch.end < windows_.size() && (size == 0 || size + windows_[batch.end].bytes() <= buffer_bytes_ / 2);
       ++batch.end)
    size += windows_[batch.end].bytes();
  if (batch.bytes.size() < size) batch.bytes.resize(size);
  uint64_t at = 0;
  for (size_t i = first; i < batch.end && batch.status.ok(); ++i) {
    batch.status = ReadWindow(windows_[i], batch.bytes.data() + at);
    at += windows_[i].bytes();
  }
  return batch;
}

Status BlockReader::Run(reshard::Inflow* inflow, const std::function<Status()>& poll) {
  List(*inflow);
  if (windows_.empty()) return inflow->Finish();
  const auto read = [this](size_t first, std::vector<uint8_t> buffer) {
    return std::async(std::launch::async,
                      [this, first, kept = std::move(buffer)]() mutable { return Read(first, std::move(kept)); });
  };
  std::vector<uint8_t> spare;
  std::future<Batch> next = read(0, {});
  while (next.valid()) {
    Batch batch = next.get();
    KINTSUGI_RETURN_IF_ERROR(batch.status);
    KINTSUGI_RETURN_IF_ERROR(poll());
    if (batch.end < windows_.size()) next = read(batch.end, std::move(spare));
    uint64_t at = 0;
    for (size_t i = batch.first; i < batch.end; ++i) {
      const Window& window = windows_[i];
      for (size_t t = window.first_take; t < window.end_take; ++t) {
        const Take& take = takes_[t];
        inflow->Take(take.piece, take.first, take.count, batch.bytes.data() + at + (take.begin - window.begin));
      }
      at += window.bytes();
    }
    bytes_read_ += at;
    buffer_peak_bytes_ = std::max<uint64_t>(buffer_peak_bytes_, 2 * batch.bytes.size());
    spare = std::move(batch.bytes);
  }
  return inflow->Finish();
}

}  // namespace kintsugi::resume
