// Faults of a device: what a trainer reports of it, and simulated ones (what its driver would report, damaged memory).
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <thread>

#include "runtime/agent/impl.h"
#include "runtime/device/cuda_error.h"
#include "runtime/device/cuda_fresh_memory.h"
#include "runtime/device/damage_map.h"
#include "runtime/device/device_event.h"

namespace kintsugi {
namespace {

using device::AddressRange;

// The whole pages of a tensor's memory, which is what a device takes out of use; empty where it has no whole page. On a
// device all of it: how its memory was mapped is known to its driver.
AddressRange PagesOf(const Memory& memory) {
  if (memory.kind == MemoryKind::kDevice) return {reinterpret_cast<uint64_t>(memory.data), memory.size_bytes};
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uint64_t>(memory.data), end = start + memory.size_bytes;
  const uint64_t from = (start + page - 1) / page * page, to = end / page * page;
  return {from, from < to ? to - from : 0};
}

// Fresh memory where the tensor lies; the driver is loaded when the first tensor on a device needs it.
class FreshByKind final : public device::FreshMemory {
 public:
  Status Replace(const Memory& memory, const AddressRange& range) override {
    if (memory.kind != MemoryKind::kDevice) return host_->Replace(memory, range);
    if (!device_) {
      KINTSUGI_ASSIGN_OR_RETURN(device_, device::CudaFreshMemory(memory.device));
    }
    return device_->Replace(memory, range);
  }

 private:
  const std::unique_ptr<device::FreshMemory> host_ = device::HostFreshMemory();
  std::unique_ptr<device::FreshMemory> device_;
};

}  // namespace

Status Agent::Impl::StrikeDevice(const Injection& injection, Step step) {
  if (!injection.tensors.empty()) return DamageMemory(injection, step);
  if (options_.device_fd < 0)
    return {StatusCode::kFailedPrecondition,
            "'" + ToString(injection) + "' needs a launcher that watches devices: start the rank with `kintsugi run`"};
  const device::DeviceEvent event{
      .number = injection.xid, .device = options_.device, .pid = static_cast<int>(getpid())};
  const std::string line = device::SimulatedLine(event) + "\n";
  // Shorter than PIPE_BUF: lines of several ranks do not mix.
  if (write(options_.device_fd, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return {StatusCode::kInternal, "'" + ToString(injection) + "' could not be told to the launcher"};
  // A process whose device has failed gets no further.
  while (device::Classify(event).action >= device::Action::kRestartProcess)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Status::Ok();
}

// As a trainer does whose device names damaged addresses while its context lives.
Status Agent::Impl::DamageMemory(const Injection& injection, Step step) {
  std::vector<AddressRange> damaged;
  for (const std::string& key : KeysToPoison(injection)) damaged.push_back(PagesOf(registry_.tensors().at(key).memory));
  return ReportDamage(damaged, "device memory error at step " + step.ToString() + ": " + ToString(injection),
                      ErrorTime::Now());
}

// Fresh memory for what is damaged, where that is registered tensors and nothing else; else the whole rank counts.
Status Agent::Impl::ReportDamage(const std::vector<AddressRange>& damaged, const std::string& text, ErrorTime when) {
  device::Damage damage;
  {
    const MutexLock lock(places_);
    const auto& tensors = registry_.tensors();
    damage = device::FindDamage(tensors, damaged);
    if (relocation_) return ReportMemoryError({}, text + "; tensors were about to move", when);
    if (!damage.IsPatchable())
      return ReportMemoryError({}, text + "; the damage is not within whole pages of registered tensors", when);
    FreshByKind fresh;
    const Status replaced = device::ReplaceDamaged(tensors, damage, fresh);
    if (!replaced.ok()) return ReportMemoryError({}, text + "; " + replaced.message(), when);
  }
  std::vector<std::string> keys;
  for (const device::TensorDamage& tensor : damage.tensors) keys.push_back(tensor.key);
  return ReportMemoryError(keys, text, when);
}

Status Agent::Impl::ReportCudaError(int error, int query, const std::vector<AddressRange>& damaged,
                                    const std::string& text, ErrorTime when) {
  const device::CudaErrorClass found = device::ClassifyCudaError(error, query, !damaged.empty());
  const std::string what = found.name + ": " + text;
  log_->Write(LogLevel::kWarning, LogLine("cuda_error", {{"rank", options_.rank.ToString()},
                                                         {"error", found.name},
                                                         {"context_lost", found.context_lost ? "yes" : "no"},
                                                         {"rung", std::string(device::CudaRungName(found.rung))}}));
  switch (found.rung) {
    case device::CudaRung::kNone:
      return {StatusCode::kInternal, what + " (no fault of the device)"};
    case device::CudaRung::kPatch:
      return ReportDamage(damaged, what, when);
    case device::CudaRung::kRebuild:
      return ReportMemoryError({}, what, when);
    case device::CudaRung::kRespawn:
    case device::CudaRung::kRespawnElsewhere:
      break;
  }
  // No process can have a second context: whatever it does from here on fails.
  const std::string why = what + (found.context_lost ? "; the context is lost" : "; there is no usable device") +
                          ": this process is to be replaced";
  {
    const MutexLock lock(mutex_);
    leaves_ = why;
  }
  // The run goes on with a new process; the stop handler frees the trainer's thread, wherever it is.
  boost::asio::post(io_, [this, why] { DoEnd(1, why); });
  return {StatusCode::kEnded, why};
}

}  // namespace kintsugi
