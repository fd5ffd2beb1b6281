#include "replica/links/make_link.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "replica/device/cuda_memory.h"
#include "replica/stream/nccl_link.h"
#include "replica/stream/peer_process.h"
#include "replica/stream/shared_memory_link.h"
#include "replica/stream/shared_segment.h"
#include "replica/stream/staged_link.h"
#include "replica/stream/store_wait.h"
#include "replica/stream/tcp_link.h"
#include "replica/stream/tcp_meeting.h"

namespace kintsugi {
namespace {

// What the ranks tell each other through the store. Read on the same host only: `magic` and `host` differ elsewhere.
struct Offer {
  uint64_t magic = kMagic;
  HostId host{};
  uint64_t nonce = 0;
  uint64_t start_ticks = 0;
  int32_t pid = 0;
  int32_t fd = -1;
  uint32_t shared_memory = 0;  // offer: possible on this side; answer: the link goes through shared memory
  uint32_t only = 0;           // shared memory or nothing
  int32_t nccl = 0;            // its version where this side can and would; both the same: the link goes over NCCL

  static constexpr uint64_t kMagic = 0x6b696e7473754f66;
};

std::vector<uint8_t> Encode(const Offer& offer) {
  std::vector<uint8_t> bytes(sizeof(Offer));
  std::memcpy(bytes.data(), &offer, sizeof(Offer));
  return bytes;
}

Offer Decode(const std::vector<uint8_t>& bytes) {
  Offer offer;
  if (bytes.size() == sizeof(Offer)) std::memcpy(&offer, bytes.data(), sizeof(Offer));
  if (bytes.size() != sizeof(Offer) || offer.magic != Offer::kMagic) offer = {.shared_memory = 0};
  return offer;
}

Offer Describe(const LinkOptions& options) {
  return {.host = ThisHost(),
          .start_ticks = StartTicks(getpid()),
          .pid = getpid(),
          .shared_memory = options.prefer != LinkPreference::kTcp && options.prefer != LinkPreference::kNccl,
          .only = options.prefer == LinkPreference::kSharedMemory};
}

class Opener {
 public:
  Opener(Store& store, const LinkOptions& options)
      : store_(store),
        options_(options),
        low_(options.self < options.peer),
        prefix_("link/" + options.generation.ToString() + "/" + options.name + "/" +
                std::min(options.self, options.peer).ToString() + "-" +
                std::max(options.self, options.peer).ToString()),
        memory_(options.memory) {}

  Result<std::unique_ptr<Link>> Open() {
    if (options_.self == options_.peer)
      return Status(StatusCode::kInvalidArgument, "link '" + options_.name + "': a rank has no link to itself");
    if (options_.prefer == LinkPreference::kNccl) LoadDevice();
    auto link = low_ ? OpenLow() : OpenHigh();
    if (link.ok() && memory_ && (*link)->kind() != "nccl") return StageThroughHost(std::move(link).value(), memory_);
    if (link.ok()) return link;
    return link.status().Annotate("opening link '" + options_.name + "' of generation " +
                                  options_.generation.ToString() + " from rank " + options_.self.ToString() +
                                  " to rank " + options_.peer.ToString());
  }

 private:
  // The lower rank makes the segment, the higher one tries to open it and decides.
  Result<std::unique_ptr<Link>> OpenLow() {
    Offer mine = Describe(options_);
    mine.nccl = nccl_version();
    std::optional<SharedSegment> segment;
    if (mine.shared_memory) {
      mine.nonce = (uint64_t{std::random_device()()} << 32) | std::random_device()();
      auto created = SharedSegment::Create(mine.nonce);
      if (created.ok()) segment.emplace(std::move(*created));
      mine.fd = segment ? segment->fd() : -1;
      mine.shared_memory = segment.has_value();
    }
    KINTSUGI_RETURN_IF_ERROR(store_.Set(prefix_ + "/offer", Encode(mine)));
    KINTSUGI_ASSIGN_OR_RETURN(const Offer answer, Get("answer"));
    if (answer.nccl != 0 && answer.nccl == mine.nccl) return OpenNccl();
    if (!answer.shared_memory || !segment) return OpenTcp(answer);
    segment->CloseDescriptor();
    auto process = PeerProcess::Watch(answer.pid);
    if (!process.ok() || StartTicks(answer.pid) != answer.start_ticks)
      return Status(StatusCode::kCommFailure, "the rank's process has ended");
    return MakeSharedMemoryLink(std::move(*segment), 0, options_.peer, std::move(*process));
  }

  Result<std::unique_ptr<Link>> OpenHigh() {
    KINTSUGI_ASSIGN_OR_RETURN(const Offer offer, Get("offer"));
    Offer mine = Describe(options_);
    mine.nccl = nccl_version();
    std::optional<PeerProcess> process;
    std::optional<SharedSegment> segment;
    if (mine.shared_memory && offer.shared_memory && offer.host == mine.host) {
      // Watched before it is opened: the segment then proves that the watched process is the one that made the offer.
      auto watched = PeerProcess::Watch(offer.pid);
      if (watched.ok()) process.emplace(std::move(*watched));
      auto opened = SharedSegment::Open(offer.pid, offer.fd, offer.nonce);
      if (opened.ok()) segment.emplace(std::move(*opened));
    }
    mine.shared_memory = process && segment;
    KINTSUGI_RETURN_IF_ERROR(store_.Set(prefix_ + "/answer", Encode(mine)));
    if (offer.nccl != 0 && offer.nccl == mine.nccl) return OpenNccl();
    if (!mine.shared_memory) return OpenTcp(offer);
    return MakeSharedMemoryLink(std::move(*segment), 1, options_.peer, std::move(*process));
  }

  Result<std::unique_ptr<Link>> OpenTcp(const Offer& theirs) {
    if (options_.prefer == LinkPreference::kSharedMemory || theirs.only)
      return Status(
          StatusCode::kFailedPrecondition,
          "shared memory was asked for, but the ranks do not share a host, a user and a process id namespace, "
          "or one of them asks for TCP");
    KINTSUGI_ASSIGN_OR_RETURN(UniqueFd socket, MeetOverTcp(store_, {.prefix = prefix_,
                                                                    .listens = low_,
                                                                    .deadline = options_.deadline,
                                                                    .address = options_.address,
                                                                    .cancel = options_.cancel}));
    if (nccl_ && theirs.nccl != nccl_->version)
      Note(theirs.nccl == 0
               ? "the peer has or wants none"
               : "the peer has " + NcclVersionText(theirs.nccl) + ", this rank " + NcclVersionText(nccl_->version));
    return MakeTcpLink(std::move(socket), options_.peer);
  }

  Result<std::unique_ptr<Link>> OpenNccl() {
    return MakeNcclLink(store_, nccl_, cuda_->cuda(),
                        {.prefix = prefix_ + "/nccl",
                         .self = options_.self,
                         .peer = options_.peer,
                         .deadline = options_.deadline,
                         .cancel = options_.cancel,
                         .kernels = cuda_->kernels()});
  }

  void LoadDevice() {
    cuda_ = std::dynamic_pointer_cast<const CudaMemory>(memory_);
    if (!cuda_) {
      auto opened = CudaMemory::Open(options_.device, options_.kernels);
      if (!opened.ok()) return Note(opened.status().message());
      cuda_ = std::move(opened).value();
      if (!memory_) memory_ = cuda_;
    }
    if ((nccl_ = cuda_->nccl())) return;
    auto nccl = LoadNccl();
    if (!nccl.ok()) return Note(nccl.status().message());
    nccl_ = std::move(nccl).value();
  }

  int32_t nccl_version() const { return nccl_ ? nccl_->version : 0; }

  void Note(const std::string& reason) const {
    if (options_.log)
      options_.log->Write(LogLevel::kWarning, LogLine("nccl_unavailable", {{"gen", options_.generation.ToString()},
                                                                           {"rank", options_.self.ToString()},
                                                                           {"peer", options_.peer.ToString()},
                                                                           {"reason", reason},
                                                                           {"instead", "tcp"}}));
  }

  Result<Offer> Get(const std::string& key) {
    const auto stopped = [&] { return options_.cancel && options_.cancel->cancelled(); };
    KINTSUGI_ASSIGN_OR_RETURN(const auto bytes,
                              GetUnlessStopped(store_, prefix_ + "/" + key, options_.deadline, stopped));
    return Decode(bytes);
  }

  Store& store_;
  const LinkOptions& options_;
  const bool low_;
  const std::string prefix_;
  std::shared_ptr<const DeviceMemory> memory_;
  std::shared_ptr<const CudaMemory> cuda_;  // with kNccl, where there is a device
  std::shared_ptr<const NcclApi> nccl_;     // and where NCCL can be loaded
};

}  // namespace

Result<std::unique_ptr<Link>> MakeLink(Store& store, const LinkOptions& options) {
  return Opener(store, options).Open();
}

}  // namespace kintsugi
