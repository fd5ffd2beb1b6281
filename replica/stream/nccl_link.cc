#include "replica/stream/nccl_link.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "replica/stream/cuda_staging.h"
#include "replica/stream/store_wait.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

// Queries without a pause, then with one: small messages take microseconds, large ones milliseconds.
constexpr int kEagerQueries = 200;
constexpr auto kQueryPause = 100us;

// A message's first bytes, on a communicator whose operations have fixed sizes.
struct Header {
  static constexpr uint64_t kMagic = 0x6b6e74734e43434c;
  uint64_t magic = kMagic;
  uint64_t size_bytes = 0;
};

class NcclLink final : public Link {
 public:
  NcclLink(std::shared_ptr<const NcclApi> api, std::unique_ptr<NcclCommunicators> communicators,
           std::unique_ptr<CudaLane> send_lane, std::unique_ptr<CudaLane> receive_lane, const NcclLinkOptions& options)
      : api_(std::move(api)),
        peer_(options.peer),
        low_(options.self < options.peer),
        piece_bytes_(options.piece_bytes),
        kernels_(options.kernels),
        send_lane_(std::move(send_lane)),
        receive_lane_(std::move(receive_lane)),
        communicators_(std::move(communicators)) {}

  // The communicators go first, then what was enqueued behind their work (copies, checksums): then nothing is under way
  // in the buffers. Where that does not come to an end, these stay too.
  ~NcclLink() override {
    communicators_->Abort();
    if (communicators_->WaitAborted(kNcclAbortLimit) && send_lane_->WaitEmpty(kNcclAbortLimit) &&
        receive_lane_->WaitEmpty(kNcclAbortLimit))
      return;
    static_cast<void>(send_lane_.release());
    static_cast<void>(receive_lane_.release());
  }

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    return Guard("send", *send_lane_, deadline,
                 [&](Wait& wait) { return SendPieces(wait, memory, offset, size_bytes, observer); });
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    return Guard("receive", *receive_lane_, deadline,
                 [&](Wait& wait) { return ReceivePieces(wait, static_cast<uint8_t*>(data), size_bytes, observer); });
  }

  void Abort() override { communicators_->Abort(); }
  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "nccl"; }

 private:
  using Slot = CudaLane::Slot;

  struct Wait {
    const char* what;
    CudaLane& lane;
    size_t communicator;
    TimePoint start;
    TimePoint deadline;
  };

  template <typename Body>
  Status Guard(const char* what, CudaLane& lane, TimePoint deadline, const Body& body) {
    // The lower rank sends over communicator 0, the higher one over 1.
    const bool sends = &lane == send_lane_.get();
    Wait wait{what, lane, sends == low_ ? size_t{0} : size_t{1}, SteadyClock::SteadyNow(), deadline};
    if (communicators_->aborted()) return internal::LinkAborted(*this, what);
    Status status = lane.device().Bind();
    if (status.ok()) status = body(wait);
    if (status.ok()) return status;
    if (communicators_->aborted()) return internal::LinkAborted(*this, what);
    if (status.code() == StatusCode::kCommFailure) return internal::LinkPeerGone(*this, what, status.message());
    if (status.code() == StatusCode::kDeadlineExceeded)
      return internal::LinkDeadline(*this, what, wait.start, deadline);
    return status;
  }

  // Waits for the slot's event, looking at everything that may end it.
  Status Await(Wait& wait, Slot& slot) {
    for (int query = 0;; ++query) {
      KINTSUGI_ASSIGN_OR_RETURN(const bool done, wait.lane.IsDone(slot));
      if (communicators_->aborted()) return {StatusCode::kCancelled, "aborted"};
      // An abort or an error lets the stream go on past work that it ended half way.
      if (done) return communicators_->AsyncError(wait.communicator);
      if (query < kEagerQueries) continue;
      KINTSUGI_RETURN_IF_ERROR(communicators_->AsyncError(wait.communicator));
      if (SteadyClock::SteadyNow() >= wait.deadline) return {StatusCode::kDeadlineExceeded, "limit"};
      std::this_thread::sleep_for(kQueryPause);
    }
  }

  int other() const { return low_ ? 1 : 0; }

  Status Put(Wait& wait, uint64_t from, uint64_t size_bytes) {
    return communicators_->Call(
        wait.communicator, "ncclSend",
        [&](NcclComm comm) {
          return api_->send(reinterpret_cast<const void*>(from), size_bytes, kNcclInt8, other(), comm,
                            wait.lane.stream());
        },
        wait.deadline);
  }

  Status Take(Wait& wait, uint64_t to, uint64_t size_bytes) {
    return communicators_->Call(
        wait.communicator, "ncclRecv",
        [&](NcclComm comm) {
          return api_->receive(reinterpret_cast<void*>(to), size_bytes, kNcclInt8, other(), comm, wait.lane.stream());
        },
        wait.deadline);
  }

  // How an observer of a message comes to know its bytes.
  enum class Watch { kNothing, kHostBytes, kCopies, kDeviceSums };

  Watch WatchOf(bool on_device, const PieceObserver* observer) const {
    if (!observer) return Watch::kNothing;
    if (!on_device) return Watch::kHostBytes;
    const uint64_t block = observer->WantsBlockSums();
    return kernels_ && block >= kSumBlockBytesMin && piece_bytes_ % block == 0 ? Watch::kDeviceSums : Watch::kCopies;
  }

  // Enqueues the checksums of the piece at `from`, and their way to the slot's host buffer.
  Status SumOnDevice(CudaLane& lane, Slot& slot, uint64_t from, uint64_t size_bytes, const PieceObserver& observer) {
    const uint64_t block = observer.WantsBlockSums(), count = SumBlocks(size_bytes, block);
    KINTSUGI_CHECK(block > 0 && piece_bytes_ % block == 0, "a piece is whole blocks of its checksums");
    KINTSUGI_RETURN_IF_ERROR(lane.Grow(slot, count * sizeof(uint64_t)));
    const BlockSums sums{reinterpret_cast<uint64_t*>(slot.device), block};
    KINTSUGI_RETURN_IF_ERROR(
        kernels_->Checksum(reinterpret_cast<const void*>(from), size_bytes, sums, KernelStream{lane.stream()}));
    return lane.CopyToHost(slot.pinned, slot.device, count * sizeof(uint64_t));
  }

  static void TellSums(const Slot& slot, uint64_t size_bytes, PieceObserver& observer) {
    const uint64_t count = SumBlocks(size_bytes, observer.WantsBlockSums());
    KINTSUGI_CHECK(count <= slot.pinned_bytes / sizeof(uint64_t), "a slot's buffer holds the checksums of its piece");
    observer.PassedSums(reinterpret_cast<const uint64_t*>(slot.pinned), count);
  }

  uint64_t PartOf(uint64_t size_bytes, uint64_t piece) const {
    KINTSUGI_CHECK(piece * piece_bytes_ < size_bytes, "a piece begins within its message");
    return std::min(piece_bytes_, size_bytes - piece * piece_bytes_);
  }

  // Calls start(piece, slot) for each piece, once finish(piece, slot) was called for the one that had its slot before;
  // so at most as many are on their way as there are slots.
  template <typename Start, typename Finish>
  Status RunPieces(Wait& wait, uint64_t size_bytes, const Start& start, const Finish& finish) {
    auto& slots = wait.lane.slots();
    const uint64_t pieces = size_bytes / piece_bytes_ + (size_bytes % piece_bytes_ != 0), ahead = slots.size();
    const auto end = [&](uint64_t piece) -> Status {
      Slot& slot = slots[piece % ahead];
      KINTSUGI_RETURN_IF_ERROR(Await(wait, slot));
      finish(piece, slot);
      return Status::Ok();
    };
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      if (piece >= ahead) KINTSUGI_RETURN_IF_ERROR(end(piece - ahead));
      Slot& slot = slots[piece % ahead];
      KINTSUGI_RETURN_IF_ERROR(Await(wait, slot));  // the header's
      KINTSUGI_RETURN_IF_ERROR(start(piece, slot));
      KINTSUGI_RETURN_IF_ERROR(wait.lane.Record(slot));
    }
    for (uint64_t piece = pieces - std::min(pieces, ahead); piece < pieces; ++piece)
      KINTSUGI_RETURN_IF_ERROR(end(piece));
    return Status::Ok();
  }

  Status SendPieces(Wait& wait, const Memory& memory, uint64_t offset, uint64_t size_bytes, PieceObserver* observer) {
    const uint8_t* data = internal::SourceOf(memory, offset, size_bytes);
    CudaLane& lane = wait.lane;
    KINTSUGI_RETURN_IF_ERROR(SendHeader(wait, size_bytes));
    const bool on_device = memory.kind == MemoryKind::kDevice;
    const Watch watch = WatchOf(on_device, observer);
    const auto start = [&](uint64_t piece, Slot& slot) -> Status {
      const uint64_t part = PartOf(size_bytes, piece);
      const uint8_t* at = data + piece * piece_bytes_;
      if (on_device) {
        const auto from = reinterpret_cast<uint64_t>(at);
        if (watch == Watch::kDeviceSums) KINTSUGI_RETURN_IF_ERROR(SumOnDevice(lane, slot, from, part, *observer));
        if (watch == Watch::kCopies) {
          KINTSUGI_RETURN_IF_ERROR(lane.Grow(slot, part));
          KINTSUGI_RETURN_IF_ERROR(lane.CopyToHost(slot.pinned, from, part));
        }
        return Put(wait, from, part);
      }
      KINTSUGI_RETURN_IF_ERROR(lane.Grow(slot, part));
      if (observer)
        observer->Copy(slot.pinned, at, part);
      else
        std::memcpy(slot.pinned, at, part);
      KINTSUGI_RETURN_IF_ERROR(lane.CopyToDevice(slot.device, slot.pinned, part));
      return Put(wait, slot.device, part);
    };
    const auto finish = [&](uint64_t piece, Slot& slot) {
      const uint64_t part = PartOf(size_bytes, piece);
      if (watch == Watch::kDeviceSums) TellSums(slot, part, *observer);
      if (watch == Watch::kCopies) observer->Passed(slot.pinned, part);
    };
    KINTSUGI_RETURN_IF_ERROR(RunPieces(wait, size_bytes, start, finish));
    return Await(wait, lane.slots()[0]);  // the header of an empty message
  }

  Status ReceivePieces(Wait& wait, uint8_t* data, uint64_t size_bytes, PieceObserver* observer) {
    CudaLane& lane = wait.lane;
    KINTSUGI_ASSIGN_OR_RETURN(const uint64_t sent, ReceiveHeader(wait));
    if (sent != size_bytes) return internal::LinkSizeMismatch(*this, size_bytes, sent);
    const bool on_device = lane.device().IsDeviceMemory(data);
    const Watch watch = WatchOf(on_device, observer);
    const auto start = [&](uint64_t piece, Slot& slot) -> Status {
      const uint64_t part = PartOf(size_bytes, piece);
      const bool staged = !on_device || watch == Watch::kCopies;
      if (staged) KINTSUGI_RETURN_IF_ERROR(lane.Grow(slot, part));
      const uint64_t to = on_device ? reinterpret_cast<uint64_t>(data + piece * piece_bytes_) : slot.device;
      KINTSUGI_RETURN_IF_ERROR(Take(wait, to, part));
      if (watch == Watch::kDeviceSums) return SumOnDevice(lane, slot, to, part, *observer);
      return staged ? lane.CopyToHost(slot.pinned, to, part) : Status::Ok();
    };
    const auto finish = [&](uint64_t piece, Slot& slot) {
      const uint64_t part = PartOf(size_bytes, piece);
      uint8_t* target = data + piece * piece_bytes_;
      if (watch == Watch::kDeviceSums) return TellSums(slot, part, *observer);
      if (watch == Watch::kCopies) return observer->Passed(slot.pinned, part);
      if (on_device) return;
      if (observer)
        observer->Copy(target, slot.pinned, part);
      else
        std::memcpy(target, slot.pinned, part);
    };
    return RunPieces(wait, size_bytes, start, finish);
  }

  Status SendHeader(Wait& wait, uint64_t size_bytes) {
    CudaLane& lane = wait.lane;
    Slot& slot = lane.slots()[0];
    KINTSUGI_RETURN_IF_ERROR(lane.Grow(slot, sizeof(Header)));
    const Header header{.size_bytes = size_bytes};
    std::memcpy(slot.pinned, &header, sizeof(header));
    KINTSUGI_RETURN_IF_ERROR(lane.CopyToDevice(slot.device, slot.pinned, sizeof(header)));
    KINTSUGI_RETURN_IF_ERROR(Put(wait, slot.device, sizeof(header)));
    return lane.Record(slot);
  }

  Result<uint64_t> ReceiveHeader(Wait& wait) {
    CudaLane& lane = wait.lane;
    Slot& slot = lane.slots()[0];
    Header header;
    KINTSUGI_RETURN_IF_ERROR(lane.Grow(slot, sizeof(header)));
    KINTSUGI_RETURN_IF_ERROR(Take(wait, slot.device, sizeof(header)));
    KINTSUGI_RETURN_IF_ERROR(lane.CopyToHost(slot.pinned, slot.device, sizeof(header)));
    KINTSUGI_RETURN_IF_ERROR(lane.Record(slot));
    KINTSUGI_RETURN_IF_ERROR(Await(wait, slot));
    std::memcpy(&header, slot.pinned, sizeof(header));
    if (header.magic == Header::kMagic) return header.size_bytes;
    return Status(StatusCode::kDataLoss, "receive over the nccl link to rank " + peer_.ToString() +
                                             ": what arrived is no message; both ranks must run one version");
  }

  const std::shared_ptr<const NcclApi> api_;
  const Rank peer_;
  const bool low_;
  const uint64_t piece_bytes_;
  const std::shared_ptr<const ByteKernels> kernels_;
  std::unique_ptr<CudaLane> send_lane_, receive_lane_;
  const std::unique_ptr<NcclCommunicators> communicators_;  // freed before the lanes
};

}  // namespace

Result<std::unique_ptr<Link>> MakeNcclLink(Store& store, std::shared_ptr<const NcclApi> api,
                                           std::shared_ptr<CudaDevice> device, const NcclLinkOptions& options) {
  if (options.self == options.peer || options.piece_bytes == 0 || options.in_flight < 1)
    return Status(StatusCode::kInvalidArgument,
                  "an NCCL link needs two ranks, pieces of at least a byte and one in flight");
  KINTSUGI_RETURN_IF_ERROR(device->Bind());
  const bool low = options.self < options.peer;
  const std::string key = options.prefix + "/ids";
  std::vector<uint8_t> bytes(2 * sizeof(NcclUniqueId));
  if (low) {
    for (size_t i = 0; i < 2; ++i) {
      NcclUniqueId id;
      if (const int code = api->get_unique_id(&id); code != kNcclSuccess)
        return Status(StatusCode::kUnavailable, api->Describe("ncclGetUniqueId", code, nullptr));
      std::memcpy(bytes.data() + i * sizeof(id), &id, sizeof(id));
    }
    KINTSUGI_RETURN_IF_ERROR(store.Set(key, bytes));
  } else {
    const auto stopped = [&] { return options.cancel && options.cancel->cancelled(); };
    KINTSUGI_ASSIGN_OR_RETURN(bytes, GetUnlessStopped(store, key, options.deadline, stopped));
    if (bytes.size() != 2 * sizeof(NcclUniqueId))
      return Status(StatusCode::kDataLoss,
                    "'" + key + "' holds " + std::to_string(bytes.size()) + " bytes, not two NCCL ids");
  }
  std::vector<NcclMembership> memberships(2);
  for (size_t i = 0; i < 2; ++i) {
    memberships[i] = {.ranks = 2, .rank = low ? 0 : 1, .ids = std::vector<NcclUniqueId>(1)};
    std::memcpy(memberships[i].ids.data(), bytes.data() + i * sizeof(NcclUniqueId), sizeof(NcclUniqueId));
  }
  KINTSUGI_ASSIGN_OR_RETURN(auto send_lane, CudaLane::Make(device, options.in_flight));
  KINTSUGI_ASSIGN_OR_RETURN(auto receive_lane, CudaLane::Make(device, options.in_flight));
  KINTSUGI_ASSIGN_OR_RETURN(
      auto communicators,
      NcclCommunicators::Init(api, device, memberships, {options.deadline, options.cancel, options.ctas_max}));
  return std::unique_ptr<Link>(std::make_unique<NcclLink>(std::move(api), std::move(communicators),
                                                          std::move(send_lane), std::move(receive_lane), options));
}

}  // namespace kintsugi
