#include "replica/device/cuda_memory.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/byte_kernels.h"
#include "replica/device/cuda_segment.h"
#include "replica/stream/cuda_staging.h"
#include "runtime/base/mutex.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using Slot = CudaLane::Slot;

constexpr uint64_t kStagedPieceBytes = 4 << 20;
constexpr uint64_t kPinnedPieceBytes = 64 << 20;  // a stop is looked at between two of them
constexpr uint64_t kSummedPieceBytes = uint64_t{1} << 32;
constexpr int kSlots = 2;
// What is under way is waited for this long after a call was given up: pieces take far less on a device that works.
constexpr Duration kGrace = 50ms;
constexpr Duration kSpin = 50us;

// Until the process ends; reachable, so that a search for leaks sees that it is meant.
void KeepForGood(std::unique_ptr<CudaLane> lane) {
  static Mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<CudaLane>>;
  const MutexLock lock(mutex);
  kept->push_back(std::move(lane));
}

}  // namespace

class CudaMemory::Lanes {
 public:
  explicit Lanes(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  ~Lanes() {
    for (auto& lane : stuck_) {
      const auto done = [&](Slot& slot) {
        const auto is_done = lane->IsDone(slot);
        return is_done.ok() && *is_done;
      };
      // The device may still write into its buffers.
      if (!device_->Bind().ok() || !std::all_of(lane->slots().begin(), lane->slots().end(), done))
        KeepForGood(std::move(lane));
    }
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  Result<std::unique_ptr<CudaLane>> Take() {
    KINTSUGI_RETURN_IF_ERROR(device_->Bind());
    {
      const MutexLock lock(mutex_);
      if (!free_.empty()) {
        auto lane = std::move(free_.back());
        free_.pop_back();
        return lane;
      }
    }
    return CudaLane::Make(device_, kSlots);
  }

  // `quiet`: nothing is under way on it.
  void GiveBack(std::unique_ptr<CudaLane> lane, bool quiet) {
    const MutexLock lock(mutex_);
    (quiet ? free_ : stuck_).push_back(std::move(lane));
  }

 private:
  const std::shared_ptr<CudaDevice> device_;
  Mutex mutex_;
  std::vector<std::unique_ptr<CudaLane>> free_ KINTSUGI_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<CudaLane>> stuck_ KINTSUGI_GUARDED_BY(mutex_);
};

// A lane for the time of one call.
class CudaMemory::Use {
 public:
  Use(const CudaMemory& memory, std::unique_ptr<CudaLane> lane, const CopyLimit& limit)
      : memory_(memory), lane_(std::move(lane)), limit_(limit) {}
  ~Use() {
    const TimePoint until = SteadyClock::SteadyNow() + kGrace;
    bool quiet = true;
    for (Slot& slot : lane_->slots()) quiet = quiet && Await(slot, {.deadline = until}).ok();
    memory_.lanes_->GiveBack(std::move(lane_), quiet);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  CudaLane& lane() { return *lane_; }

  // Calls start(slot, offset, size) for each piece, and finish(slot, offset, size) once the device is done with it; two
  // are under way at a time.
  template <typename Start, typename Finish>
  Status RunPieces(uint64_t size_bytes, uint64_t piece_bytes, const Start& start, const Finish& finish) {
    const uint64_t pieces = size_bytes / piece_bytes + (size_bytes % piece_bytes != 0);
    const auto size_of = [&](uint64_t piece) { return std::min(piece_bytes, size_bytes - piece * piece_bytes); };
    const auto end = [&](uint64_t piece) -> Status {
      Slot& slot = lane_->slots()[piece % kSlots];
      KINTSUGI_RETURN_IF_ERROR(Await(slot, limit_));
      finish(slot, piece * piece_bytes, size_of(piece));
      return Status::Ok();
    };
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      if (piece >= kSlots) KINTSUGI_RETURN_IF_ERROR(end(piece - kSlots));
      if (limit_.stop && limit_.stop->load(std::memory_order_relaxed)) return Stopped();
      Slot& slot = lane_->slots()[piece % kSlots];
      KINTSUGI_RETURN_IF_ERROR(start(slot, piece * piece_bytes, size_of(piece)));
      KINTSUGI_RETURN_IF_ERROR(lane_->Record(slot));
    }
    for (uint64_t piece = pieces - std::min<uint64_t>(pieces, kSlots); piece < pieces; ++piece)
      KINTSUGI_RETURN_IF_ERROR(end(piece));
    return Status::Ok();
  }

 private:
  Status Stopped() const {
    return {StatusCode::kCancelled, "a copy of CUDA device " + std::to_string(memory_.device()) + " was given up"};
  }

  Status Await(Slot& slot, const CopyLimit& limit) {
    const TimePoint begin = SteadyClock::SteadyNow();
    for (;;) {
      KINTSUGI_ASSIGN_OR_RETURN(const bool done, lane_->IsDone(slot));
      if (done) return Status::Ok();
      const TimePoint now = SteadyClock::SteadyNow();
      if (now >= limit.deadline)
        return {StatusCode::kDeadlineExceeded,
                "CUDA device " + std::to_string(memory_.device()) + " did not finish a copy: elapsed " +
                    std::to_string(static_cast<int64_t>(ToMilliseconds(now - begin))) + " ms"};
      if (limit.stop && limit.stop->load(std::memory_order_relaxed)) return Stopped();
      if (now - begin < kSpin)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(20us);
    }
  }

  const CudaMemory& memory_;
  std::unique_ptr<CudaLane> lane_;
  const CopyLimit& limit_;
};

Result<std::shared_ptr<CudaMemory>> CudaMemory::Open(int ordinal, std::shared_ptr<const ByteKernels> kernels,
                                                     const std::string& path) {
  KINTSUGI_ASSIGN_OR_RETURN(auto device, CudaDevice::Open(ordinal, path));
  return std::make_shared<CudaMemory>(std::move(device), std::move(kernels));
}

CudaMemory::CudaMemory(std::shared_ptr<CudaDevice> device, std::shared_ptr<const ByteKernels> kernels,
                       std::shared_ptr<const NcclApi> nccl)
    : device_(std::move(device)),
      kernels_(std::move(kernels)),
      nccl_(std::move(nccl)),
      lanes_(std::make_unique<Lanes>(device_)) {}
CudaMemory::~CudaMemory() = default;

int CudaMemory::device() const { return device_->ordinal(); }
bool CudaMemory::Holds(const void* data) const { return device_->IsDeviceMemory(data); }

Status CudaMemory::Read(void* host, const void* from, uint64_t size_bytes, const CopyLimit& limit) const {
  if (size_bytes == 0) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(auto lane, lanes_->Take());
  Use use(*this, std::move(lane), limit);
  auto* const to = static_cast<uint8_t*>(host);
  const auto device = reinterpret_cast<uint64_t>(from);
  if (device_->IsPinned(host, size_bytes))
    return use.RunPieces(
        size_bytes, kPinnedPieceBytes,
        [&](Slot&, uint64_t at, uint64_t size) { return use.lane().CopyToHost(to + at, device + at, size); },
        [](Slot&, uint64_t, uint64_t) {});
  return use.RunPieces(
      size_bytes, kStagedPieceBytes,
      [&](Slot& slot, uint64_t at, uint64_t size) -> Status {
        KINTSUGI_RETURN_IF_ERROR(use.lane().GrowHost(slot, size));
        return use.lane().CopyToHost(slot.pinned, device + at, size);
      },
      [&](Slot& slot, uint64_t at, uint64_t size) { std::memcpy(to + at, slot.pinned, size); });
}

Status CudaMemory::Settle() const { return device_->Synchronize(); }

Status CudaMemory::Write(void* to, const void* host, uint64_t size_bytes, const CopyLimit& limit) const {
  if (size_bytes == 0) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(auto lane, lanes_->Take());
  Use use(*this, std::move(lane), limit);
  const auto* const from = static_cast<const uint8_t*>(host);
  const auto device = reinterpret_cast<uint64_t>(to);
  const auto nothing = [](Slot&, uint64_t, uint64_t) {};
  if (device_->IsPinned(host, size_bytes))
    return use.RunPieces(
        size_bytes, kPinnedPieceBytes,
        [&](Slot&, uint64_t at, uint64_t size) { return use.lane().CopyToDevice(device + at, from + at, size); },
        nothing);
  return use.RunPieces(
      size_bytes, kStagedPieceBytes,
      [&](Slot& slot, uint64_t at, uint64_t size) -> Status {
        KINTSUGI_RETURN_IF_ERROR(use.lane().GrowHost(slot, size));
        std::memcpy(slot.pinned, from + at, size);
        return use.lane().CopyToDevice(device + at, slot.pinned, size);
      },
      nothing);
}

Status CudaMemory::BlockSums(const void* data, uint64_t size_bytes, uint64_t block_bytes, uint64_t* sums,
                             const CopyLimit& limit) const {
  if (!kernels_)
    return {StatusCode::kFailedPrecondition, "no kernels were handed over for CUDA device " + std::to_string(device()) +
                                                 ": CudaMemory::Open takes them"};
  if (size_bytes == 0) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(auto lane, lanes_->Take());
  Use use(*this, std::move(lane), limit);
  const auto* const from = static_cast<const uint8_t*>(data);
  const auto bytes_of = [&](uint64_t size) { return SumBlocks(size, block_bytes) * sizeof(uint64_t); };
  return use.RunPieces(
      size_bytes, std::max(kSummedPieceBytes, block_bytes),
      [&](Slot& slot, uint64_t at, uint64_t size) -> Status {
        KINTSUGI_RETURN_IF_ERROR(use.lane().Grow(slot, bytes_of(size)));
        const kintsugi::BlockSums where{reinterpret_cast<uint64_t*>(slot.device), block_bytes};
        KINTSUGI_RETURN_IF_ERROR(kernels_->Checksum(from + at, size, where, KernelStream{use.lane().stream()}));
        return use.lane().CopyToHost(slot.pinned, slot.device, bytes_of(size));
      },
      [&](Slot& slot, uint64_t at, uint64_t size) {
        std::memcpy(sums + at / block_bytes, slot.pinned, bytes_of(size));
      });
}

Result<std::shared_ptr<uint8_t>> CudaMemory::AllocateHost(uint64_t size_bytes) const {
  KINTSUGI_RETURN_IF_ERROR(device_->Bind());
  void* host = nullptr;
  const Status made =
      device_->Check(device_->driver().host_allocate(&host, std::max<uint64_t>(size_bytes, 1), 0), "cuMemHostAlloc");
  if (!made.ok())
    return Status(StatusCode::kResourceExhausted,
                  std::to_string(size_bytes) + " bytes of pinned host memory: " + made.message());
  return std::shared_ptr<uint8_t>(static_cast<uint8_t*>(host), [device = device_](uint8_t* memory) {
    if (device->Bind().ok()) device->driver().host_free(memory);
  });
}

Result<std::unique_ptr<KeptMemory>> CudaMemory::AllocateKept(uint64_t size_bytes) const {
  return CudaSegment::Allocate(device_, size_bytes);
}

std::shared_ptr<void> CudaMemory::Pin(void* host, uint64_t size_bytes) const {
  const CudaDriver& driver = device_->driver();
  if (size_bytes == 0 || !driver.host_register || !driver.host_unregister || !device_->Bind().ok()) return nullptr;
  if (driver.host_register(host, size_bytes, 0) != 0) return nullptr;
  return {host, [device = device_](void* memory) {
            if (device->Bind().ok()) device->driver().host_unregister(memory);
          }};
}

// ---- CudaFence -----------------------------------------------------------------------------------------------------

CudaFence::CudaFence(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}

Result<std::unique_ptr<CudaFence>> CudaFence::Make(std::shared_ptr<CudaDevice> device) {
  constexpr unsigned kDisableTiming = 2;
  KINTSUGI_RETURN_IF_ERROR(device->Bind());
  std::unique_ptr<CudaFence> fence(new CudaFence(device));
  KINTSUGI_RETURN_IF_ERROR(
      device->Check(device->driver().event_create(&fence->event_, kDisableTiming), "cuEventCreate"));
  return fence;
}

CudaFence::~CudaFence() {
  if (event_ && device_->Bind().ok()) device_->driver().event_destroy(event_);
}

Status CudaFence::Record(void* stream) {
  KINTSUGI_RETURN_IF_ERROR(device_->Bind());
  return device_->Check(device_->driver().event_record(event_, stream), "cuEventRecord");
}

Result<bool> CudaFence::IsDone() const {
  KINTSUGI_RETURN_IF_ERROR(device_->Bind());
  const int result = device_->driver().event_query(event_);
  if (result == kCudaNotReady) return false;
  KINTSUGI_RETURN_IF_ERROR(device_->Check(result, "cuEventQuery"));
  return true;
}

}  // namespace kintsugi
