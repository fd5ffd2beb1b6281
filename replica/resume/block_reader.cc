#include "replica/resume/block_reader.h"

#include <algorithm>
#include <future>
#include <tuple>

#include "replica/plan/plan.h"
#include "replica/save/names.h"
#include "replica/save/verify.h"

namespace kintsugi::resume {

using checkpoint::Extent;
using checkpoint::kBlockBytes;

void BlockReader::List(const reshard::Inflow& inflow) {
  const uint64_t window_blocks = std::max<uint64_t>(1, buffer_bytes_ / 2 / kBlockBytes);
  for (const uint32_t piece : inflow.Pieces()) {
    const Extent& extent = catalogue_.ExtentOf(piece);
    const auto element = static_cast<uint64_t>(plan::ElementBytes(source_.keys[source_.KeyOfPiece(piece)]));
    for (const FlatRange& range : inflow.Needed(piece, static_cast<int64_t>(kBlockBytes / element))) {
      const uint64_t begin = static_cast<uint64_t>(range.start) * element / kBlockBytes;
      const uint64_t end = checkpoint::BlockCount(static_cast<uint64_t>(range.stop) * element);
      for (uint64_t first = begin; first < end; first += window_blocks) {
        const uint64_t count = std::min(window_blocks, end - first);
        windows_.push_back(
            {piece, first, count, std::min((first + count) * kBlockBytes, extent.size_bytes) - first * kBlockBytes});
      }
    }
  }
  // In the order of the files: sequential for the disk.
  const auto place = [this](const Window& window) {
    const Extent& extent = catalogue_.ExtentOf(window.piece);
    return std::tuple(std::string_view(extent.file), extent.offset + window.first * kBlockBytes);
  };
  std::sort(windows_.begin(), windows_.end(), [&](const Window& a, const Window& b) { return place(a) < place(b); });
}

Status BlockReader::ReadWindow(const Window& window, uint8_t* to) {
  const Extent& extent = catalogue_.ExtentOf(window.piece);
  const std::string path = checkpoint::Join(folder_, extent.file);
  if (open_name_ != extent.file || !open_) {
    open_name_ = extent.file;
    KINTSUGI_ASSIGN_OR_RETURN(open_, files_.Open(path));
  }
  const std::string what = "tensor '" + source_.keys[source_.KeyOfPiece(window.piece)].name + "'";
  return ReadStretch(*open_, path, extent, window.first, window.count, what, to);
}

BlockReader::Batch BlockReader::Read(size_t first, std::vector<uint8_t> buffer) {
  Batch batch{first, first, std::move(buffer), Status::Ok()};
  uint64_t size = 0;
  for (; batch.end < windows_.size() && (size == 0 || size + windows_[batch.end].bytes <= buffer_bytes_ / 2);
       ++batch.end)
    size += windows_[batch.end].bytes;
  if (batch.bytes.size() < size) batch.bytes.resize(size);
  uint64_t at = 0;
  for (size_t i = first; i < batch.end && batch.status.ok(); ++i) {
    batch.status = ReadWindow(windows_[i], batch.bytes.data() + at);
    at += windows_[i].bytes;
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
      const int64_t element = plan::ElementBytes(source_.keys[source_.KeyOfPiece(window.piece)]);
      inflow->Take(window.piece, static_cast<int64_t>(window.first * kBlockBytes) / element,
                   static_cast<int64_t>(window.bytes) / element, batch.bytes.data() + at);
      at += window.bytes;
    }
    bytes_read_ += at;
    buffer_peak_bytes_ = std::max<uint64_t>(buffer_peak_bytes_, 2 * batch.bytes.size());
    spare = std::move(batch.bytes);
  }
  return inflow->Finish();
}

}  // namespace kintsugi::resume
