#include "replica/save/data_writer.h"

#include <algorithm>
#include <array>

#include "runtime/base/check.h"

namespace kintsugi::checkpoint {
namespace {

// Bytes per write: large enough that the call itself costs nothing, small enough that the bytes whose checksums were
// just taken are still in the cache when the kernel copies them.
constexpr uint64_t kWriteBytes = 4 * kBlockBytes;
static_assert(kWriteBytes % kBlockBytes == 0, "checksums of blocks go on from one write to the next");
constexpr size_t kPiecesMax = 1024;
constexpr std::array<uint8_t, kAlignment> kZeros{};

// All kinds, of one block after the other: the second and the third find it in the cache.
void AppendChecksums(std::span<const uint8_t> bytes, Extent* extent, LogicalSum* sum) {
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    const auto block = bytes.subspan(at, std::min<size_t>(kBlockBytes, bytes.size() - at));
    AppendBlocks(block, &extent->blocks);
    if (extent->size_bytes > kSubBlockBytes) AppendSubBlocks(block, &extent->sub_blocks);
    if (sum) sum->Update(block);
  }
}

Extent Whole(Extent extent) {
  KINTSUGI_CHECK(extent.blocks.size() == BlockCount(extent.size_bytes), "an extent has a checksum for each block");
  KINTSUGI_CHECK(extent.sub_blocks.size() == SubBlockCount(extent.size_bytes), "and for each part of one");
  return extent;
}

}  // namespace

DataWriter::DataWriter(std::unique_ptr<WritableFile> file, std::string name, std::function<Status()> poll)
    : file_(std::move(file)), name_(std::move(name)), poll_(std::move(poll)) {
  KINTSUGI_CHECK(file_ != nullptr, "what is written goes to a file, and each file to one writer");
}

Extent DataWriter::Begin(uint64_t size_bytes) {
  if (const uint64_t gap = Aligned(end_) - end_; gap > 0) Gather(std::span(kZeros).first(gap));
  KINTSUGI_CHECK(end_ % kAlignment == 0 && size_bytes <= INT64_MAX - end_, "an extent begins aligned, within a file");
  Extent extent{name_, end_, size_bytes, {}};
  extent.blocks.reserve(BlockCount(size_bytes));
  extent.sub_blocks.reserve(SubBlockCount(size_bytes));
  return extent;
}

Result<Extent> DataWriter::AppendFrom(const DeviceMemory& device, const Memory& memory, LogicalSum* sum) {
  if (!buffer_) {
    KINTSUGI_ASSIGN_OR_RETURN(buffer_, device.AllocateHost(kWriteBytes));
  }
  Extent extent = Begin(memory.size_bytes);
  const auto* const from = static_cast<const uint8_t*>(memory.data);
  for (uint64_t at = 0; at < memory.size_bytes; at += kWriteBytes) {
    const std::span<const uint8_t> now(buffer_.get(), std::min(kWriteBytes, memory.size_bytes - at));
    KINTSUGI_RETURN_IF_ERROR(poll_());
    KINTSUGI_RETURN_IF_ERROR(device.Read(buffer_.get(), from + at, now.size()));
    AppendChecksums(now, &extent, sum);
    Gather(now);
    KINTSUGI_RETURN_IF_ERROR(Write());
  }
  return Whole(std::move(extent));
}

Result<Extent> DataWriter::Append(std::span<const uint8_t> bytes, LogicalSum* sum) {
  Extent extent = Begin(bytes.size());
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min<size_t>(bytes.size(), kWriteBytes));
    AppendChecksums(now, &extent, sum);
    Gather(now);
    bytes = bytes.subspan(now.size());
    if (pending_ >= kWriteBytes || pieces_.size() >= kPiecesMax) KINTSUGI_RETURN_IF_ERROR(Write());
  }
  return Whole(std::move(extent));
}

void DataWriter::Gather(std::span<const uint8_t> bytes) {
  pieces_.push_back(bytes);
  pending_ += bytes.size();
  end_ += bytes.size();
}

Status DataWriter::Write() {
  KINTSUGI_RETURN_IF_ERROR(poll_());
  KINTSUGI_CHECK(pending_ <= end_, "what is not written yet is the file's end");
  const uint64_t begin = end_ - pending_;
  KINTSUGI_RETURN_IF_ERROR(file_->Write(begin, pieces_));
  // The disk works while the next bytes are copied, and the final sync has little left to do.
  file_->StartFlush(begin, pending_);
  pieces_.clear();
  pending_ = 0;
  return Status::Ok();
}

Status DataWriter::Finish() {
  if (pending_ > 0) KINTSUGI_RETURN_IF_ERROR(Write());
  KINTSUGI_CHECK(pending_ == 0 && pieces_.empty(), "a file that is finished was written whole");
  KINTSUGI_RETURN_IF_ERROR(poll_());
  return file_->Sync();
}

}  // namespace kintsugi::checkpoint
