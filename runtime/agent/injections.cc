#include "runtime/agent/injections.h"

#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "runtime/device/device_event.h"

namespace kintsugi {

void Injections::SlowDown() const {
  if (slow_.count() > 0) [[unlikely]]
    std::this_thread::sleep_for(slow_);
}

Status Injections::StrikeIfDue(Step step, const std::function<bool(const Injection&)>& is_here) {
  const std::optional<ArmedFaults::Armed> due = armed_.Take(step, is_here);
  if (!due) return Status::Ok();
  // Memory is damaged once all of it is: how long the poisoning takes is no part of the fault.
  if (due->fault.kind == InjectionKind::kUce) damage_.Poison(due->fault);
  if (due->fault.kind == InjectionKind::kFlip) damage_.Flip(due->fault);
  page_.words().fault_ns.store(static_cast<uint64_t>(SteadyClock::SteadyNow().nanoseconds()));
  page_.words().fired_injections.fetch_or(1ull << (due->id & 63));
  return Strike(due->fault, step);
}

Status Injections::Strike(const Injection& injection, Step step) {
  switch (injection.kind) {
    case InjectionKind::kKill:
      kill(getpid(), SIGKILL);
      pause();
      break;
    case InjectionKind::kExit:
      _exit(injection.exit_code);
    case InjectionKind::kFreeze:
      kill(getpid(), SIGSTOP);
      break;
    case InjectionKind::kSlow:
      slow_ = std::chrono::milliseconds(injection.slow_ms);
      break;
    case InjectionKind::kFlip:
      break;  // done, and nobody is told
    case InjectionKind::kFlipGrad:
      flip_ = true;
      return {StatusCode::kInternal,
              "'" + ToString(injection) +
                  "' strikes in what a trainer says that it gives to a collective (BeginCollective, "
                  "kintsugi_begin_collective_with), or in the collectives of kintsugi.torch"};
    case InjectionKind::kThrow:
      throw_ = true;
      return {StatusCode::kInternal, "injected exception: " + ToString(injection)};
    case InjectionKind::kHang:
      return Hang(injection);
    case InjectionKind::kDevice:
      return StrikeDevice(injection, step);
    case InjectionKind::kUce: {
      const bool low = injection.level == UceLevel::kLow;
      return reports_.MemoryError(low ? damage_.KeysOf(injection) : std::vector<std::string>(),
                                  "injected memory error at step " + step.ToString() + ": " + ToString(injection),
                                  ErrorTime::Now());
    }
  }
  return Status::Ok();
}

Status Injections::Hang(const Injection& injection) const {
  while (injection.until == HangUntil::kKill || !gate_.SeemsLocked())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Interrupted("injected hang");
}

Status Injections::StrikeDevice(const Injection& injection, Step step) {
  // As a trainer does whose device names damaged addresses while its context lives.
  if (!injection.tensors.empty())
    return reports_.Damage(damage_.PagesOf(injection),
                           "device memory error at step " + step.ToString() + ": " + ToString(injection),
                           ErrorTime::Now());
  const AgentOptions& options = self_.options;
  if (options.device_fd < 0)
    return {StatusCode::kFailedPrecondition,
            "'" + ToString(injection) + "' needs a launcher that watches devices: start the rank with `kintsugi run`"};
  const device::DeviceEvent event{.number = injection.xid, .device = options.device, .pid = static_cast<int>(getpid())};
  const std::string line = device::SimulatedLine(event) + "\n";
  // Shorter than PIPE_BUF: lines of several ranks do not mix.
  if (write(options.device_fd, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return {StatusCode::kInternal, "'" + ToString(injection) + "' could not be told to the launcher"};
  // A process whose device has failed gets no further.
  while (device::Classify(event).action >= device::Action::kRestartProcess)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Status::Ok();
}

}  // namespace kintsugi
