#include "replica/stream/staged_link.h"

#include <thread>

#include "replica/stream/cuda_staging.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

class StagedLink final : public Link {
 public:
  StagedLink(std::unique_ptr<Link> link, std::shared_ptr<CudaDevice> device)
      : device_(std::move(device)), link_(std::move(link)) {}

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    if (memory.kind != MemoryKind::kDevice) return link_->Send(memory, offset, size_bytes, deadline, observer);
    KINTSUGI_ASSIGN_OR_RETURN(uint8_t* const host, Stage(send_, size_bytes));
    const uint64_t from = reinterpret_cast<uint64_t>(memory.data) + offset;
    KINTSUGI_RETURN_IF_ERROR(Copy(
        *send_, [&] { return send_->CopyToHost(host, from, size_bytes); }, "send", deadline));
    return link_->Send({.data = host, .size_bytes = size_bytes}, 0, size_bytes, deadline, observer);
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    if (!device_->IsDeviceMemory(data)) return link_->Receive(data, size_bytes, deadline, observer);
    KINTSUGI_ASSIGN_OR_RETURN(uint8_t* const host, Stage(receive_, size_bytes));
    KINTSUGI_RETURN_IF_ERROR(link_->Receive(host, size_bytes, deadline, observer));
    return Copy(
        *receive_, [&] { return receive_->CopyToDevice(reinterpret_cast<uint64_t>(data), host, size_bytes); },
        "receive", deadline);
  }

  void Abort() override { link_->Abort(); }
  Rank peer() const override { return link_->peer(); }
  std::string_view kind() const override { return link_->kind(); }

 private:
  // A pinned buffer of so many bytes; the thread has the device's context afterwards.
  Result<uint8_t*> Stage(std::unique_ptr<CudaLane>& lane, uint64_t size_bytes) {
    KINTSUGI_RETURN_IF_ERROR(device_->Bind());
    if (!lane) {
      KINTSUGI_ASSIGN_OR_RETURN(lane, CudaLane::Make(device_, 1));
    }
    KINTSUGI_RETURN_IF_ERROR(lane->Grow(lane->slots()[0], size_bytes));
    return lane->slots()[0].pinned;
  }

  template <typename Start>
  Status Copy(CudaLane& lane, const Start& start, const char* what, TimePoint deadline) {
    const TimePoint begin = SteadyClock::SteadyNow();
    KINTSUGI_RETURN_IF_ERROR(start());
    KINTSUGI_RETURN_IF_ERROR(lane.Record(lane.slots()[0]));
    for (;;) {
      KINTSUGI_ASSIGN_OR_RETURN(const bool done, lane.IsDone(lane.slots()[0]));
      if (done) return Status::Ok();
      if (SteadyClock::SteadyNow() >= deadline) return internal::LinkDeadline(*this, what, begin, deadline);
      std::this_thread::sleep_for(20us);
    }
  }

  const std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<CudaLane> send_, receive_;  // each of one thread, as the link's directions
  const std::unique_ptr<Link> link_;
};

}  // namespace

std::unique_ptr<Link> StageThroughHost(std::unique_ptr<Link> link, std::shared_ptr<CudaDevice> device) {
  return std::make_unique<StagedLink>(std::move(link), std::move(device));
}

}  // namespace kintsugi
