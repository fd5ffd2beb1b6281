#include "replica/formats/write.h"

#include <isa-l/crc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <thread>

#include "callbacks/state/key.h"
#include "replica/formats/block_hasher.h"
#include "replica/formats/window_plan.h"
#include "replica/save/logical_sum.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"

namespace kintsugi::formats {
namespace {

using checkpoint::FileSystem;
using checkpoint::Join;
using checkpoint::LogicalSum;
using checkpoint::WritableFile;

// Bytes below this are gathered, larger runs are written from where they lie.
constexpr uint64_t kGatherBytes = 1 << 20;
constexpr uint64_t kWriteBytes = 4 << 20;
constexpr uint64_t kWriteWindowBytes = 8 << 20;
// Of a window, at once: what was hashed is still in the near cache when it is written.
constexpr uint64_t kPassBytes = 1 << 20;

// One file, front to back.
class FileStream {
 public:
  FileStream(std::unique_ptr<WritableFile> file, std::string name) : file_(std::move(file)) {
    written_.name = std::move(name);
  }

  Status Append(std::span<const uint8_t> bytes) {
    hasher_.Update(bytes);
    written_.size_bytes += bytes.size();
    if (bytes.size() < kGatherBytes) {
      gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
      return gathered_.size() < kWriteBytes ? Status::Ok() : Flush({});
    }
    return Flush(bytes);
  }
  Status Finish() {
    KINTSUGI_RETURN_IF_ERROR(Flush({}));
    KINTSUGI_CHECK(at_ == written_.size_bytes, "'" + written_.name + "': " + std::to_string(at_) +
                                                   " bytes written of " + std::to_string(written_.size_bytes));
    KINTSUGI_RETURN_IF_ERROR(file_->Sync());
    written_.blocks = hasher_.Finish();
    return Status::Ok();
  }
  WrittenFile& written() { return written_; }

 private:
  Status Flush(std::span<const uint8_t> behind) {
    const WritableFile::Piece pieces[] = {gathered_, behind};
    const uint64_t size = gathered_.size() + behind.size();
    if (size == 0) return Status::Ok();
    KINTSUGI_RETURN_IF_ERROR(file_->Write(at_, pieces));
    at_ += size;
    gathered_.clear();
    KINTSUGI_CHECK(flushed_ <= at_, "'" + written_.name + "': flushed up to byte " + std::to_string(flushed_) +
                                        ", written up to " + std::to_string(at_));
    if (at_ - flushed_ < kWriteBytes) return Status::Ok();
    // The disk works while the next bytes are made.
    file_->StartFlush(flushed_, at_ - flushed_);
    flushed_ = at_;
    return Status::Ok();
  }

  std::unique_ptr<WritableFile> file_;
  std::vector<uint8_t> gathered_;
  BlockHasher hasher_;
  uint64_t at_ = 0, flushed_ = 0;
  WrittenFile written_;
};

// The checksums of one segment.
struct SegmentHasher {
  explicit SegmentHasher(uint64_t segment_bytes) : wants_sub_blocks(checkpoint::SubBlockCount(segment_bytes) > 0) {}
  void Update(std::span<const uint8_t> bytes) {
    blocks.Update(bytes);
    if (wants_sub_blocks) sub_blocks.Update(bytes);
  }
  const bool wants_sub_blocks;
  BlockHasher blocks, sub_blocks{checkpoint::kSubBlockBytes};
};

bool IsAlive(const std::string& digits) {
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos) return true;
  return ::kill(static_cast<pid_t>(std::stol(digits)), 0) == 0 || errno != ESRCH;
}

class Writing {
 public:
  Writing(const Outline& outline, const Content& tensors, const Catalog& source, const std::string& destination,
          const WriteOptions& options, FileSystem& files)
      : outline_(outline),
        tensors_(tensors),
        source_(source),
        destination_(destination),
        options_(options),
        files_(files),
        aside_(destination + std::string(kUnfinished) + std::to_string(::getpid())) {}

  Result<WriteResult> Run(const aoa::Engine* engine, const Sidecar& about) {
    const PathKind there = KindOfPath(destination_);
    if (there != PathKind::kNothing && !options_.overwrite)
      return Status(StatusCode::kFailedPrecondition, "'" + destination_ +
                                                         "' is there already: name another place, or "
                                                         "say --overwrite");
    if (there != PathKind::kNothing && (there == PathKind::kFolder) != outline_.is_folder)
      return Status(StatusCode::kFailedPrecondition, "'" + destination_ + "' is a " +
                                                         (outline_.is_folder ? "file" : "folder") +
                                                         ", what is to be "
                                                         "written is the other: name another place");
    KINTSUGI_RETURN_IF_ERROR(MakePlan(engine));
    RemoveLeftovers();
    Status status = WriteAside(about);
    if (status.ok()) status = source_.CheckUnchanged();
    if (status.ok()) status = Publish(there != PathKind::kNothing);
    if (!status.ok()) {
      // The first error is the one that counts.
      (void)files_.Remove(aside_);
      (void)files_.Remove(SidecarPath(aside_, false));
      return status;
    }
    return result_;
  }

 private:
  Status MakePlan(const aoa::Engine* engine) {
    is_renamed_ = engine != nullptr;
    std::vector<WantedBox> wanted;
    for (const OutlineFile& file : outline_.files)
      for (const Segment& segment : file.segments)
        if (segment.kind == Segment::Kind::kTensor) wanted.push_back({segment.tensor, segment.box});
    for (const OutlineFile& file : outline_.files) total_ += file.size_bytes;
    threads_ = options_.threads > 0 ? options_.threads : static_cast<int>(std::thread::hardware_concurrency());
    threads_ = std::clamp(threads_, 1, static_cast<int>(std::max<size_t>(1, outline_.files.size())));
    // Half of the memory is for buffers: a window and what is gathered, for each thread.
    const uint64_t memory = std::max(options_.memory_bytes, kMemoryBytesMin) / 2;
    threads_ = static_cast<int>(std::clamp<uint64_t>(memory / (2 * kWriteBytes), 1, static_cast<uint64_t>(threads_)));
    const uint64_t window =
        std::clamp<uint64_t>(memory / static_cast<uint64_t>(2 * threads_), kGatherBytes, kWriteWindowBytes);
    KINTSUGI_ASSIGN_OR_RETURN(plan_, WindowPlan::Make(tensors_, wanted, source_, engine, window));
    return Status::Ok();
  }

  // What killed writers of this name left behind.
  void RemoveLeftovers() {
    const auto names = files_.List(checkpoint::ParentOf(destination_));
    if (!names.ok()) return;
    const std::string prefix = checkpoint::BaseName(destination_) + std::string(kUnfinished);
    for (const std::string& name : *names) {
      if (!name.starts_with(prefix)) continue;
      std::string process = name.substr(prefix.size());
      if (const std::string side = SidecarPath("", false); process.ends_with(side))
        process.resize(process.size() - side.size());
      if (!IsAlive(process)) (void)files_.Remove(Join(checkpoint::ParentOf(destination_), name));
    }
  }

  std::string PathOf(const OutlineFile& file) const { return file.name.empty() ? aside_ : Join(aside_, file.name); }

  Status MakeFolders() {
    KINTSUGI_RETURN_IF_ERROR(files_.MakeFolder(checkpoint::ParentOf(destination_)));
    KINTSUGI_CHECK(outline_.is_folder || (outline_.files.size() == 1 && outline_.marks.empty()),
                   "'" + destination_ + "' is one file, and " + std::to_string(outline_.files.size()) + " with " +
                       std::to_string(outline_.marks.size()) + " marks are laid out");
    if (!outline_.is_folder) return Status::Ok();
    folders_.insert(aside_);
    std::set<std::string_view> names;
    for (const auto* files : {&outline_.files, &outline_.marks})
      for (const OutlineFile& file : *files) {
        const bool is_new = names.insert(file.name).second;
        KINTSUGI_CHECK(is_new, "'" + destination_ + "': '" + file.name + "' is written twice");
        KINTSUGI_CHECK(!file.name.starts_with('/') && ("/" + file.name + "/").find("/../") == std::string::npos,
                       "'" + destination_ + "': '" + file.name + "' leads out of it");
        for (size_t at = file.name.find('/'); at != std::string::npos; at = file.name.find('/', at + 1))
          folders_.insert(Join(aside_, file.name.substr(0, at)));
      }
    for (const std::string& folder : folders_) KINTSUGI_RETURN_IF_ERROR(files_.MakeFolder(folder));
    return Status::Ok();
  }
  Status SyncFolders() {
    for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder)
      KINTSUGI_RETURN_IF_ERROR(files_.SyncFolder(*folder));
    return Status::Ok();
  }

  Status WriteAside(const Sidecar& about) {
    KINTSUGI_RETURN_IF_ERROR(files_.Remove(aside_));
    KINTSUGI_RETURN_IF_ERROR(MakeFolders());
    written_.resize(outline_.files.size());
    std::vector<uint32_t> first_box(outline_.files.size());
    uint32_t boxes = 0;
    for (size_t i = 0; i < outline_.files.size(); ++i) {
      first_box[i] = boxes;
      for (const Segment& segment : outline_.files[i].segments) boxes += segment.kind == Segment::Kind::kTensor;
    }
    std::atomic<size_t> next{0};
    const auto write_all = [&] {
      std::vector<uint8_t> buffer(plan_->window_bytes_max());
      for (size_t i = next++; i < outline_.files.size() && !failed_; i = next++)
        if (const Status status = WriteData(outline_.files[i], first_box[i], buffer, &written_[i]); !status.ok())
          Fail(status);
    };
    // The edge for what is thrown below it: a thread of somebody else's process must not end that.
    const auto work = [&] {
      try {
        write_all();
      } catch (const std::bad_alloc&) {
        Fail({StatusCode::kResourceExhausted, "no memory for a window"});
      } catch (const std::exception& error) {
        Fail({StatusCode::kInternal, error.what()});
      }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < threads_; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (failed_) return failure_;
    KINTSUGI_CHECK(done_ == total_,
                   "'" + destination_ + "': " + std::to_string(done_) + " bytes written of " + std::to_string(total_));
    const std::vector<checkpoint::TensorSum> sums = sums_.Sums();
    KINTSUGI_RETURN_IF_ERROR(CompareSums(sums));
    KINTSUGI_RETURN_IF_ERROR(SyncFolders());
    for (const OutlineFile& mark : outline_.marks) {
      KINTSUGI_RETURN_IF_ERROR(WriteMark(mark));
      KINTSUGI_RETURN_IF_ERROR(SyncFolders());
    }
    if (!options_.sidecar) return Status::Ok();
    Sidecar sidecar = about;
    sidecar.files = written_;
    sidecar.tensor_sums = sums;
    const std::string path = SidecarPath(aside_, outline_.is_folder);
    KINTSUGI_RETURN_IF_ERROR(checkpoint::WriteSmallFile(files_, path, EncodeSidecar(sidecar)));
    return SyncFolders();
  }

  // That what was written is what the source's writer had, where nothing was to change on the way.
  Status CompareSums(const std::vector<checkpoint::TensorSum>& written) const {
    if (is_renamed_) return Status::Ok();
    for (const checkpoint::TensorSum& tensor : written) {
      const auto saved = source_.SumOf({tensor.key, tensor.dtype, tensor.shape, {}});
      if (saved && *saved != tensor.sum)
        return {StatusCode::kDataLoss,
                "tensor '" + PrintableKey(tensor.key) + "' was written with the sum " + checkpoint::ToHex(tensor.sum) +
                    ", '" + source_.path() + "' was saved with " + checkpoint::ToHex(*saved) +
                    ": what lies there is damaged (kintsugi ckpt verify), or it was put to a wrong place"};
    }
    return Status::Ok();
  }

  Status WriteData(const OutlineFile& file, uint32_t box, std::vector<uint8_t>& buffer, WrittenFile* written) {
    KINTSUGI_ASSIGN_OR_RETURN(auto opened, files_.Create(PathOf(file)));
    KINTSUGI_RETURN_IF_ERROR(opened->Reserve(file.size_bytes));
    FileStream stream(std::move(opened), file.name);
    std::vector<uint32_t> crcs(static_cast<size_t>(file.crc_slots));
    for (const Segment& segment : file.segments) {
      SegmentHasher hasher(segment.size_bytes);
      uint64_t sum = 0;
      const uint64_t begin = stream.written().size_bytes;
      if (segment.kind == Segment::Kind::kTensor) {
        const ShardedTensor shard = ShardOf(segment);
        LogicalSum adding(shard);
        for (uint32_t w = plan_->first_window(box); w < plan_->end_window(box); ++w)
          KINTSUGI_RETURN_IF_ERROR(
              WriteWindow(segment, w, file.wants_segment_blocks ? &hasher : nullptr, buffer, crcs, stream, &adding));
        ++box;
        sum = adding.value();
        const MutexLock lock(mutex_);
        sums_.Add(shard, sum);
      } else {
        const std::string late = segment.kind == Segment::Kind::kLate ? segment.late(crcs) : std::string();
        const std::string& bytes = segment.kind == Segment::Kind::kLate ? late : segment.bytes;
        const std::span<const uint8_t> view(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
        if (segment.crc >= 0) AddToCrc(segment, view, crcs);
        if (file.wants_segment_blocks) hasher.Update(view);
        KINTSUGI_RETURN_IF_ERROR(stream.Append(view));
        Advance(view.size());
      }
      KINTSUGI_CHECK(stream.written().size_bytes - begin == segment.size_bytes,
                     "'" + file.name + "', byte " + std::to_string(begin) + ": " +
                         std::to_string(stream.written().size_bytes - begin) + " bytes of a segment that has " +
                         std::to_string(segment.size_bytes) + " by its outline");
      if (!file.wants_segment_blocks) continue;
      stream.written().segment_bytes.push_back(segment.size_bytes);
      stream.written().segment_blocks.push_back(hasher.blocks.Finish());
      stream.written().segment_sub_blocks.push_back(hasher.sub_blocks.Finish());
      stream.written().segment_sums.push_back(sum);
    }
    KINTSUGI_RETURN_IF_ERROR(stream.Finish());
    KINTSUGI_CHECK(stream.written().size_bytes == file.size_bytes,
                   "'" + file.name + "' has " + std::to_string(stream.written().size_bytes) +
                       " bytes, by its outline " + std::to_string(file.size_bytes));
    *written = std::move(stream.written());
    return Status::Ok();
  }

  // A segment's box as a shard of its tensor; its windows follow one another in it.
  ShardedTensor ShardOf(const Segment& segment) const {
    KINTSUGI_CHECK(segment.tensor < tensors_.size(),
                   "a segment of tensor " + std::to_string(segment.tensor) + " of " + std::to_string(tensors_.size()));
    const CatalogTensor& tensor = tensors_[segment.tensor];
    KINTSUGI_CHECK(static_cast<size_t>(segment.box.axes) == tensor.shape.size(),
                   "a segment " + Describe(segment.box) + " of '" + tensor.key + "' " + DescribeShape(tensor.shape));
    ShardedTensor shard;
    shard.key = tensor.key;
    shard.dtype = tensor.dtype;
    shard.global_shape = tensor.shape;
    shard.global_offset = OffsetOf(segment.box);
    shard.local_shape = LengthsOf(segment.box);
    return shard;
  }

  // Segments of one slot are one run of bytes, in order.
  static void AddToCrc(const Segment& segment, std::span<const uint8_t> bytes, std::vector<uint32_t>& crcs) {
    KINTSUGI_CHECK(segment.crc >= 0 && static_cast<size_t>(segment.crc) < crcs.size(),
                   "a CRC in slot " + std::to_string(segment.crc) + " of " + std::to_string(crcs.size()));
    uint32_t& crc = crcs[static_cast<size_t>(segment.crc)];
    crc = ::crc32_gzip_refl(crc, bytes.data(), bytes.size());
  }

  Status WriteWindow(const Segment& segment, uint32_t window, SegmentHasher* hasher, std::vector<uint8_t>& buffer,
                     std::vector<uint32_t>& crcs, FileStream& stream, LogicalSum* sum) {
    if (failed_) return {StatusCode::kCancelled, "another file could not be written"};
    if (options_.poll) KINTSUGI_RETURN_IF_ERROR(options_.poll());
    const uint64_t size = plan_->BytesOf(window);
    if (size == 0) return Status::Ok();
    KINTSUGI_ASSIGN_OR_RETURN(const uint8_t* const data, plan_->Fill(window, buffer));
    for (uint64_t at = 0; at < size; at += kPassBytes) {
      const std::span<const uint8_t> bytes(data + at, std::min(kPassBytes, size - at));
      if (segment.crc >= 0) AddToCrc(segment, bytes, crcs);
      if (hasher) hasher->Update(bytes);
      sum->Update(bytes);
      KINTSUGI_RETURN_IF_ERROR(stream.Append(bytes));
    }
    if (data != buffer.data()) unstaged_ += size;
    if (since_drop_.fetch_add(size) + size > std::max(options_.memory_bytes, kMemoryBytesMin) / 2) {
      since_drop_ = 0;
      source_.DropPages();
    }
    Advance(size);
    return Status::Ok();
  }

  Status WriteMark(const OutlineFile& mark) {
    std::string bytes;
    if (mark.content) {
      KINTSUGI_ASSIGN_OR_RETURN(bytes, mark.content(written_));
    } else {
      for (const Segment& segment : mark.segments) bytes += segment.bytes;
      KINTSUGI_CHECK(bytes.size() == mark.size_bytes, "the mark '" + mark.name + "' of " +
                                                          std::to_string(mark.size_bytes) + " bytes has " +
                                                          std::to_string(bytes.size()) + " that are known");
    }
    KINTSUGI_RETURN_IF_ERROR(checkpoint::WriteSmallFile(files_, PathOf(mark), bytes));
    WrittenFile written;
    written.name = mark.name;
    written.size_bytes = bytes.size();
    checkpoint::AppendBlocks({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, &written.blocks);
    written_.push_back(std::move(written));
    return Status::Ok();
  }

  Status Publish(bool is_there) {
    const std::string parent = checkpoint::ParentOf(destination_);
    KINTSUGI_CHECK(written_.size() == outline_.files.size() + outline_.marks.size(),
                   "'" + destination_ + "' of " + std::to_string(outline_.files.size() + outline_.marks.size()) +
                       " files would be published with " + std::to_string(written_.size()));
    if (outline_.is_folder && is_there) {
      KINTSUGI_RETURN_IF_ERROR(files_.Exchange(aside_, destination_));
      KINTSUGI_RETURN_IF_ERROR(files_.SyncFolder(parent));
      KINTSUGI_RETURN_IF_ERROR(files_.Remove(aside_));
    } else {
      if (!outline_.is_folder && options_.sidecar)
        KINTSUGI_RETURN_IF_ERROR(files_.Remove(SidecarPath(destination_, false)));
      KINTSUGI_RETURN_IF_ERROR(files_.Rename(aside_, destination_));
      if (!outline_.is_folder && options_.sidecar) {
        KINTSUGI_RETURN_IF_ERROR(files_.SyncFolder(parent));
        KINTSUGI_RETURN_IF_ERROR(files_.Rename(SidecarPath(aside_, false), SidecarPath(destination_, false)));
      }
    }
    KINTSUGI_RETURN_IF_ERROR(files_.SyncFolder(parent));
    for (const WrittenFile& file : written_) result_.bytes += file.size_bytes;
    result_.files = written_.size();
    result_.bytes_unstaged = unstaged_;
    return Status::Ok();
  }

  void Advance(uint64_t bytes) {
    const MutexLock lock(mutex_);
    done_ += bytes;
    KINTSUGI_CHECK(done_ <= total_,
                   "'" + destination_ + "': " + std::to_string(done_) + " bytes written of " + std::to_string(total_));
    if (options_.progress) options_.progress(done_, total_);
  }
  void Fail(const Status& status) {
    const MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = status;
    failed_ = true;
  }

  const Outline& outline_;
  const Content& tensors_;
  const Catalog& source_;
  const std::string& destination_;
  const WriteOptions& options_;
  FileSystem& files_;
  const std::string aside_;
  int threads_ = 1;
  std::unique_ptr<WindowPlan> plan_;
  std::set<std::string> folders_;
  std::vector<WrittenFile> written_;
  WriteResult result_;
  std::atomic<uint64_t> unstaged_{0}, since_drop_{0};
  std::atomic<bool> failed_{false};
  bool is_renamed_ = false;  // by a program: what is written is not what the source's writer summed up
  Mutex mutex_;
  // Guarded by mutex_ while threads run.
  checkpoint::SumGatherer sums_;
  uint64_t done_ = 0, total_ = 0;
  Status failure_;
};

}  // namespace

Result<WriteResult> WriteOutline(const Outline& outline, const Content& tensors, const Catalog& source,
                                 const aoa::Engine* engine, const std::string& destination, const Sidecar& about,
                                 const WriteOptions& options, FileSystem& files) {
  return Writing(outline, tensors, source, destination, options, files).Run(engine, about);
}

}  // namespace kintsugi::formats
