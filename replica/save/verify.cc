#include "replica/save/verify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "kernels/host_checksum.h"
#include "replica/save/logical_sum.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::checkpoint {
namespace {

constexpr size_t kDamagesNamed = 8;

struct Damages {
  size_t count = 0;
  std::string text;
  void Add(const Status& status) {
    if (count++ < kDamagesNamed) text += (text.empty() ? "" : "; ") + status.message();
  }
};

// `sums` gets what the tensors' bytes add up to.
void VerifyPart(const CheckpointInfo& info, const Part& part, FileSystem& files, SumGatherer* sums, Damages* damages) {
  std::vector<uint8_t> buffer(kBlockBytes);
  const auto check = [&](const std::string& name, auto&& each) {
    const std::string path = Join(info.path, name);
    auto file = files.Open(path);
    if (!file.ok()) return damages->Add(file.status());
    each([&](const Extent& extent, const std::string& what, const ShardedTensor* tensor) {
      std::optional<LogicalSum> sum;
      if (tensor) sum.emplace(*tensor);
      const auto take = [&](uint64_t, const uint8_t* block, uint64_t size) {
        if (sum) sum->Update({block, size});
        return Status::Ok();
      };
      const Status read = ReadExtent(**file, path, extent, what, buffer.data(), take, [] { return Status::Ok(); });
      if (!read.ok()) damages->Add(read);
      if (tensor) sums->Add(*tensor, read.ok() ? std::optional(sum->value()) : std::nullopt);
    });
  };
  for (const StoredShard& shard : part.shards)
    check(shard.file, [&](auto&& extent) {
      for (const StoredTensor& stored : shard.tensors)
        extent(stored.extent, "tensor '" + stored.tensor.key + "'", &stored.tensor);
    });
  if (part.objects.empty()) return;
  check(part.objects_file, [&](auto&& extent) {
    for (const StoredObjects& stored : part.objects)
      extent(stored.extent, "mirrored objects of rank " + stored.rank.ToString(), nullptr);
  });
}

// That the tensors are what they were when they were saved, in spite of all that lies between: each block agrees with
// its own checksum, and still a shard may have come to another one's place.
void CompareSums(const std::vector<TensorSum>& saved, const std::vector<TensorSum>& found, Damages* damages) {
  std::map<std::string_view, const TensorSum*> by_key;
  for (const TensorSum& tensor : found) by_key[tensor.key] = &tensor;
  for (const TensorSum& tensor : saved) {
    const auto own = by_key.find(tensor.key);
    const std::string what = "tensor '" + tensor.key + "' ";
    if (own == by_key.end())
      damages->Add(
          {StatusCode::kDataLoss, what + "is listed with its sum, but its shards are not there once and whole"});
    else if (*own->second != tensor)
      damages->Add({StatusCode::kDataLoss, what + "has the sum " + ToHex(own->second->sum) + ", what was saved " +
                                               ToHex(tensor.sum) + ": use another checkpoint"});
  }
}

// `at`: byte of the extent where the damaged block, or part of one, begins.
Status Damaged(const std::string& path, const Extent& extent, uint64_t at, const std::string& what) {
  return {StatusCode::kDataLoss, what + " is damaged in block " + std::to_string(at / kBlockBytes) + " of " +
                                     std::to_string(extent.blocks.size()) + ": '" + path + "' from byte " +
                                     std::to_string(extent.offset + at) +
                                     " on does not match its checksum: use another checkpoint"};
}

// Into the pieces, in parts that stay in the near cache, where the checksum over all of them and `arrived` find them.
// `running` is used for it.
Result<Checksum> ReadSummed(ReadableFile& file, uint64_t offset, std::span<const std::span<uint8_t>> pieces,
                            const Arrived& arrived, RunningChecksum* running) {
  running->Reset();
  for (std::span<uint8_t> piece : pieces)
    while (!piece.empty()) {
      const std::span<uint8_t> part = piece.first(std::min<size_t>(piece.size(), kSubBlockBytes));
      KINTSUGI_RETURN_IF_ERROR(file.Read(offset, part.data(), part.size()));
      running->Update(part.data(), part.size());
      if (arrived) arrived(part);
      offset += part.size();
      piece = piece.subspan(part.size());
    }
  return running->Value();
}

// Reads block by block to where place(offset) says; take() sees each that agrees with its checksum. The system reads
// ahead by itself.
template <typename Place, typename Take>
Status ReadBlocks(ReadableFile& file, const std::string& path, const Extent& extent, const std::string& what,
                  const Place& place, const Take& take, const std::function<Status()>& poll, const Arrived& arrived) {
  KINTSUGI_CHECK(extent.blocks.size() == BlockCount(extent.size_bytes), "an extent has a checksum for each block");
  RunningChecksum running(ChecksumAlgorithm::kXxh3);
  for (uint64_t at = 0; at < extent.size_bytes; at += kBlockBytes) {
    KINTSUGI_RETURN_IF_ERROR(poll());
    const std::span<uint8_t> block(place(at), std::min(kBlockBytes, extent.size_bytes - at));
    const auto found = ReadSummed(file, extent.offset + at, {&block, 1}, arrived, &running);
    if (!found.ok()) return found.status().Annotate(what);
    if (*found != extent.blocks[at / kBlockBytes]) return Damaged(path, extent, at, what);
    KINTSUGI_RETURN_IF_ERROR(take(at, block.data(), block.size()));
  }
  return Status::Ok();
}

// What one checksum is over.
struct Unit {
  uint64_t size_bytes = 0;
  Checksum expected = 0;
};

// The smallest unit that begins at byte `at` of the extent; reading ends at `end`.
Unit UnitAt(const Extent& extent, uint64_t at, uint64_t end) {
  const bool by_parts = !extent.sub_blocks.empty();
  const uint64_t granule = by_parts ? kSubBlockBytes : kBlockBytes, size = std::min(granule, extent.size_bytes - at);
  KINTSUGI_CHECK(at % granule == 0 && size <= end - at, "a stretch is whole blocks or sub-blocks");
  return {size, (by_parts ? extent.sub_blocks : extent.blocks).at(at / granule)};
}

}  // namespace

Status ReadPieces(ReadableFile& file, uint64_t offset, std::span<const std::span<uint8_t>> pieces) {
  for (const std::span<uint8_t> piece : pieces) {
    KINTSUGI_RETURN_IF_ERROR(file.Read(offset, piece.data(), piece.size()));
    offset += piece.size();
  }
  return Status::Ok();
}

Status ReadExtent(ReadableFile& file, const std::string& path, const Extent& extent, const std::string& what,
                  uint8_t* data, const std::function<Status()>& poll, const Arrived& arrived) {
  std::vector<uint8_t> buffer(data ? 0 : std::min(extent.size_bytes, kBlockBytes));
  return ReadBlocks(
      file, path, extent, what, [&](uint64_t at) { return data ? data + at : buffer.data(); },
      [](uint64_t, const uint8_t*, uint64_t) { return Status::Ok(); }, poll, arrived);
}

Status ReadExtent(ReadableFile& file, const std::string& path, const Extent& extent, const std::string& what,
                  uint8_t* buffer, const TakeBlock& take, const std::function<Status()>& poll) {
  return ReadBlocks(file, path, extent, what, [&](uint64_t) { return buffer; }, take, poll, {});
}

Status Verify(const std::string& path, FileSystem& files) {
  KINTSUGI_ASSIGN_OR_RETURN(const CheckpointInfo info, Inspect(path, files));
  Damages damages;
  for (const SideFile& side : info.manifest.side_files) {
    const std::string name = Join(path, side.extent.file);
    auto file = files.Open(name);
    if (file.ok() && (*file)->size_bytes() != side.extent.size_bytes)
      file = Status(StatusCode::kDataLoss, "'" + name + "' has " + std::to_string((*file)->size_bytes()) +
                                               " bytes instead of " + std::to_string(side.extent.size_bytes));
    const Status read = file.ok() ? ReadExtent(**file, name, side.extent, "side file '" + side.name + "'", nullptr,
                                               [] { return Status::Ok(); })
                                  : file.status();
    if (!read.ok()) damages.Add(read);
  }
  SumGatherer sums;
  for (const ListedPart& listed : info.manifest.parts) {
    KINTSUGI_ASSIGN_OR_RETURN(const Part part, ReadPart(info, listed, files));
    VerifyPart(info, part, files, &sums, &damages);
  }
  // A tensor with a damaged block was told already.
  if (damages.count == 0) CompareSums(info.manifest.tensor_sums, sums.Sums(), &damages);
  if (damages.count == 0) return Status::Ok();
  return {StatusCode::kDataLoss, "checkpoint '" + path + "' has " + std::to_string(damages.count) +
                                     " damaged places: " + damages.text +
                                     (damages.count > kDamagesNamed ? "; ..." : "")};
}

Status ReadStretch(ReadableFile& file, const std::string& path, const Extent& extent, uint64_t begin,
                   const std::string& what, std::span<const std::span<uint8_t>> pieces, const Arrived& arrived) {
  uint64_t end = begin;
  for (const std::span<uint8_t> piece : pieces) end += piece.size();
  KINTSUGI_CHECK(begin <= end && end <= extent.size_bytes, "a stretch lies within its extent");
  RunningChecksum running(ChecksumAlgorithm::kXxh3);
  std::vector<std::span<uint8_t>> now;
  size_t piece = 0;
  uint64_t taken = 0;  // of pieces[piece]
  for (uint64_t at = begin; at < end;) {
    const Unit unit = UnitAt(extent, at, end);
    now.clear();
    for (uint64_t left = unit.size_bytes; left > 0;) {
      KINTSUGI_CHECK(piece < pieces.size(), "pieces hold the stretch");
      const std::span<uint8_t> part =
          pieces[piece].subspan(taken, std::min<uint64_t>(left, pieces[piece].size() - taken));
      if (!part.empty()) now.push_back(part);
      left -= part.size();
      taken += part.size();
      if (taken == pieces[piece].size()) ++piece, taken = 0;
    }
    const auto found = ReadSummed(file, extent.offset + at, now, arrived, &running);
    if (!found.ok()) return found.status().Annotate(what);
    if (*found != unit.expected) return Damaged(path, extent, at, what);
    at += unit.size_bytes;
  }
  return Status::Ok();
}

}  // namespace kintsugi::checkpoint
