// Faults of a device, simulated: what its driver would report, and memory that it damaged.
#include <unistd.h>

#include <thread>

#include "runtime/agent/impl.h"
#include "runtime/device/damage_map.h"
#include "runtime/device/device_event.h"

namespace kintsugi {
namespace {

using device::AddressRange;

// The whole pages of a tensor's memory, which is what a device takes out of use; empty where it has no whole page.
AddressRange PagesOf(const Memory& memory) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uint64_t>(memory.data), end = start + memory.size_bytes;
  const uint64_t from = (start + page - 1) / page * page, to = end / page * page;
  return {from, from < to ? to - from : 0};
}

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
  const auto& tensors = registry_.tensors();
  std::vector<AddressRange> damaged;
  for (const std::string& key : KeysToPoison(injection)) damaged.push_back(PagesOf(tensors.at(key).memory));
  const std::string text = "device memory error at step " + step.ToString() + ": " + ToString(injection);
  const device::Damage damage = device::FindDamage(tensors, damaged);
  if (!damage.IsPatchable()) return ReportMemoryError({}, text + "; no registered tensor has a whole page there");
  const auto fresh = device::HostFreshMemory();
  const Status replaced = device::ReplaceDamaged(tensors, damage, *fresh);
  if (!replaced.ok()) return ReportMemoryError({}, text + "; " + replaced.message());
  std::vector<std::string> keys;
  for (const device::TensorDamage& tensor : damage.tensors) keys.push_back(tensor.key);
  return ReportMemoryError(keys, text);
}

}  // namespace kintsugi
