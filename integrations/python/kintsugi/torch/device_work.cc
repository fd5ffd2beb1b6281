#include <c10/core/StreamGuard.h>
#include <device_work.h>

#include <future>
#include <thread>

namespace kintsugi::torch_door {
namespace {

constexpr char kAborted[] = "was aborted: an incident has begun";
constexpr auto kPoll = std::chrono::microseconds(20);

}  // namespace

DeviceWork::DeviceWork(What what, const c10::Stream& stream)
    : Work(-1, what.type), what_(std::move(what)), stream_(stream), end_(stream.device_type()) {
  end_.record(stream_);
  static const c10::TypePtr kTensors = c10::ListType::create(c10::TensorType::get());
  future_ = c10::make_intrusive<c10::ivalue::Future>(kTensors, std::vector<c10::Device>{stream_.device()});
  // Complete at once: who uses its value waits on his stream for what this one has enqueued.
  const c10::StreamGuard guard(stream_);
  future_->markCompleted(c10::IValue(what_.outputs));
}

// Dropped without a wait: the allocator learns that the stream still uses the memory.
DeviceWork::~DeviceWork() {
  if (what_.touched.empty()) return;
  const c10::impl::VirtualGuardImpl device(stream_.device_type());
  for (const at::Tensor& tensor : what_.touched) device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
}

std::exception_ptr DeviceWork::FailureOf(const std::string& why) const {
  return Failure(*what_.group + c10d::opTypeToString(what_.type) + " " + why);
}

void DeviceWork::CheckNotVoid() const {
  if (what_.generation->Void()) std::rethrow_exception(FailureOf(kAborted));
}

bool DeviceWork::isCompleted() { return what_.generation->Void() || end_.query(); }

bool DeviceWork::isSuccess() const { return end_.query() && !what_.generation->Void(); }

std::exception_ptr DeviceWork::exception() const { return what_.generation->Void() ? FailureOf(kAborted) : nullptr; }

void DeviceWork::synchronize() {
  CheckNotVoid();
  const c10::impl::VirtualGuardImpl device(stream_.device_type());
  end_.block(device.getStream(stream_.device()));
  CheckNotVoid();
  // From here on what the current stream does comes behind the collective.
  what_.touched.clear();
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  synchronize();
  if (what_.blocks_host) AwaitOnHost(timeout);
  return true;
}

void DeviceWork::AwaitOnHost(std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (!end_.query()) {
    CheckNotVoid();
    if (timeout != kNoTimeout && std::chrono::steady_clock::now() >= until)
      std::rethrow_exception(FailureOf("was not done within " + std::to_string(timeout.count()) + " ms"));
    std::this_thread::sleep_for(kPoll);
  }
  CheckNotVoid();
}

bool AwaitDevice(const c10::Device& device, int64_t limit_ms) {
  std::promise<void> done;
  std::future<void> waited = done.get_future();
  std::thread([device, done = std::move(done)]() mutable {
    try {
      c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
      done.set_value();
    } catch (const std::exception&) {
      done.set_exception(std::current_exception());
    }
  }).detach();
  if (waited.wait_for(std::chrono::milliseconds(limit_ms)) != std::future_status::ready) return false;
  waited.get();
  return true;
}

}  // namespace kintsugi::torch_door
