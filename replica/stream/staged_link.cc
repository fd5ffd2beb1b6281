#include "replica/stream/staged_link.h"

#include <algorithm>
#include <atomic>

namespace kintsugi {
namespace {

constexpr uint64_t kBufferBytesMin = 1 << 20;

class StagedLink final : public Link {
 public:
  StagedLink(std::unique_ptr<Link> link, std::shared_ptr<const DeviceMemory> device)
      : device_(std::move(device)), link_(std::move(link)) {}

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    if (memory.kind != MemoryKind::kDevice) return link_->Send(memory, offset, size_bytes, deadline, observer);
    KINTSUGI_ASSIGN_OR_RETURN(uint8_t* const host, send_.Hold(*device_, size_bytes));
    const uint8_t* from = internal::SourceOf(memory, offset, size_bytes);
    KINTSUGI_RETURN_IF_ERROR(Explain(device_->Read(host, from, size_bytes, {deadline, &aborted_}), "send"));
    return link_->Send({.data = host, .size_bytes = size_bytes}, 0, size_bytes, deadline, observer);
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    if (!device_->Holds(data)) return link_->Receive(data, size_bytes, deadline, observer);
    KINTSUGI_ASSIGN_OR_RETURN(uint8_t* const host, receive_.Hold(*device_, size_bytes));
    KINTSUGI_RETURN_IF_ERROR(link_->Receive(host, size_bytes, deadline, observer));
    return Explain(device_->Write(data, host, size_bytes, {deadline, &aborted_}), "receive");
  }

  void Abort() override {
    aborted_ = true;
    link_->Abort();
  }
  Rank peer() const override { return link_->peer(); }
  std::string_view kind() const override { return link_->kind(); }

 private:
  // Of one direction, and so of one thread.
  struct Buffer {
    Result<uint8_t*> Hold(const DeviceMemory& device, uint64_t wanted_bytes) {
      if (size_bytes < wanted_bytes || !host) {
        host.reset();
        size_bytes = std::max(wanted_bytes, kBufferBytesMin);
        KINTSUGI_ASSIGN_OR_RETURN(host, device.AllocateHost(size_bytes));
      }
      return host.get();
    }
    std::shared_ptr<uint8_t> host;
    uint64_t size_bytes = 0;
  };

  Status Explain(const Status& copied, std::string_view what) const {
    if (copied.code() == StatusCode::kCancelled) return internal::LinkAborted(*this, what);
    return copied.Annotate(std::string(what) + " with rank " + peer().ToString());
  }

  const std::shared_ptr<const DeviceMemory> device_;
  Buffer send_, receive_;
  std::atomic<bool> aborted_{false};
  const std::unique_ptr<Link> link_;
};

}  // namespace

std::unique_ptr<Link> StageThroughHost(std::unique_ptr<Link> link, std::shared_ptr<const DeviceMemory> device) {
  return std::make_unique<StagedLink>(std::move(link), std::move(device));
}

}  // namespace kintsugi
