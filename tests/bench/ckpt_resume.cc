#include "tests/bench/ckpt_resume.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <thread>

#include "callbacks/state/registry.h"
#include "kernels/host_checksum.h"
#include "replica/formats/format.h"
#include "replica/resume/held_sums.h"
#include "replica/resume/reshaped_load.h"
#include "replica/resume/threads.h"
#include "replica/save/arrived_sums.h"
#include "tests/support/memory_store.h"

namespace kintsugi::bench {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileError;

constexpr int kRanks = 6;

// Rank `rank` of six: its rows of every tensor.
struct Holder {
  Holder(const formats::Catalog& catalog, int rank) {
    for (const formats::CatalogTensor& stored : catalog.tensors()) {
      ShardedTensor tensor;
      tensor.key = stored.key;
      tensor.dtype = stored.dtype;
      tensor.global_shape = tensor.local_shape = stored.shape;
      const int64_t begin = stored.shape[0] * rank / kRanks, end = stored.shape[0] * (rank + 1) / kRanks;
      tensor.local_shape[0] = end - begin;
      tensor.global_offset = Shape(stored.shape.size());
      tensor.global_offset[0] = begin;
      if (begin == end) continue;
      const uint64_t size = static_cast<uint64_t>(tensor.ElementCount()) * DTypeSize(tensor.dtype);
      Memory memory(
          static_cast<uint8_t*>(std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment)));
      if (!memory) Need({StatusCode::kResourceExhausted, "no memory for the state"});
      std::memset(memory.get(), 1, size);  // touched: a trainer's is
      tensor.memory.data = memory.get();
      tensor.memory.size_bytes = size;
      Need(registry.AddTensor(tensor));
      places.emplace_back(memory.get(), size);
      memories.push_back(std::move(memory));
      bytes += size;
    }
  }
  // As allocators of tensors align. It matters: of memory 16 bytes behind a page's begin, as of a std::vector, Zen 3 reads a
  // file's pages at a quarter of the rate.
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<uint8_t[], Free>;
  std::vector<Memory> memories;
  std::vector<std::span<uint8_t>> places;
  uint64_t bytes = 0;
  StateRegistry registry;
};

// Reads an equal part of all bytes in the order of the files, as a plain program does; with checksums and sums in parts that
// stay in the near cache, as a resume takes them, and held against nothing.
class PlainReader {
 public:
  PlainReader(const std::vector<std::string>& files, Reading read, checkpoint::ArrivedSums* sums)
      : files_(files), read_(read), sums_(sums) {}

  // Bytes from `from` on of all files, taken as one, into bytes [begin, end) of the places, taken as one.
  void Read(uint64_t from, std::span<const std::span<uint8_t>> places, uint64_t begin, uint64_t end) {
    size_t file = 0;
    for (; file < files_.size() && from >= fs::file_size(files_[file]); ++file) from -= fs::file_size(files_[file]);
    if (file == files_.size()) return;
    auto fd = std::make_unique<Descriptor>(files_[file], O_RDONLY);
    uint64_t at = 0;  // where a place begins
    for (const std::span<uint8_t> place : places) {
      const uint64_t first = std::clamp(begin, at, at + place.size()) - at,
                     last = std::clamp(end, at, at + place.size()) - at;
      for (std::span<uint8_t> rest = place.subspan(first, last - first); !rest.empty();) {
        const ssize_t got = ::pread(fd->number, rest.data(), std::min(Chunk(), rest.size()), static_cast<off_t>(from));
        if (got < 0) Need(FileError(errno, "read", files_[file]));
        if (got == 0) {
          if (++file == files_.size()) return;
          fd = std::make_unique<Descriptor>(files_[file], O_RDONLY);
          from = 0;
          continue;
        }
        See(rest.first(static_cast<size_t>(got)));
        rest = rest.subspan(static_cast<size_t>(got));
        from += static_cast<uint64_t>(got);
      }
      at += place.size();
    }
  }

 private:
  size_t Chunk() const { return read_ == Reading::kPlain ? kChunkBytes : checkpoint::kSubBlockBytes; }
  void See(std::span<const uint8_t> bytes) {
    if (read_ == Reading::kPlain) return;
    running_.Reset();
    running_.Update(bytes.data(), bytes.size());
    checksums_ ^= running_.Value();
    if (read_ == Reading::kSummed) sums_->Add(bytes);
  }

  const std::vector<std::string>& files_;
  const Reading read_;
  checkpoint::ArrivedSums* const sums_;
  RunningChecksum running_{ChecksumAlgorithm::kXxh3};
  checkpoint::Checksum checksums_ = 0;
};

}  // namespace

Spent Resume(const std::string& path, Reading read) {
  const auto catalog = formats::ReadCatalog(path);
  Need(catalog.status());
  std::vector<std::unique_ptr<Holder>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<Holder>(*catalog, rank));
  std::vector<std::string> files;
  for (const auto& file : catalog->files()) files.push_back(file->path());
  MemoryStore store;
  // By as many threads as a resume reads with.
  const auto read_plainly = [&](int rank) {
    const Holder& holder = *ranks[static_cast<size_t>(rank)];
    uint64_t before = 0;
    for (int other = 0; other < rank; ++other) before += ranks[static_cast<size_t>(other)]->bytes;
    checkpoint::ArrivedSums sums(holder.registry);
    const auto parts = static_cast<uint64_t>(resume::ThreadsOf(0, kRanks));
    const auto read_part = [&](uint64_t part) {
      const uint64_t begin = holder.bytes * part / parts, end = holder.bytes * (part + 1) / parts;
      PlainReader(files, read, &sums).Read(before + begin, holder.places, begin, end);
    };
    std::vector<std::thread> others;
    for (uint64_t part = 1; part < parts; ++part) others.emplace_back(read_part, part);
    read_part(0);
    for (std::thread& other : others) other.join();
  };
  const auto load = [&](int rank) {
    checkpoint::LoadRequest request;
    request.path = path;
    request.self = Rank(rank);
    request.world_size = kRanks;
    const StateRegistry& registry = ranks[static_cast<size_t>(rank)]->registry;
    resume::Agreement agreement(&store, Rank(rank), kRanks, TimePoint::Max());
    const auto loaded = resume::LoadReshaped(registry, request, {}, agreement);
    Need(loaded.status());
    const auto compared = resume::CompareHeldSums(registry, *loaded, kRanks, {}, &agreement);
    Need(compared.status());
    if (compared->equal == 0) Need({StatusCode::kInternal, "nothing was compared"});
  };
  return TimeOf([&] {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] { read == Reading::kResume ? load(rank) : read_plainly(rank); });
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace kintsugi::bench
