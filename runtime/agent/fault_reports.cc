#include "runtime/agent/fault_reports.h"

#include <algorithm>

#include "runtime/device/cuda_error.h"

namespace kintsugi {

void FaultReports::Signal(core::FaultReport fault) {
  told_ = true;
  thread_.Post(core::FaultSignal{std::move(fault)});
}

Status FaultReports::NoteInexact(const std::string& text) {
  constexpr size_t kLongest = 500;
  if (text.empty()) return {StatusCode::kInvalidArgument, "a note of what is inexact has no text"};
  thread_.Post(core::InexactNoted{text.substr(0, kLongest)});
  return Status::Ok();
}

Status FaultReports::MemoryError(const std::vector<std::string>& keys, const std::string& text, ErrorTime when) {
  if (!registered_.begun())
    return {StatusCode::kFailedPrecondition, "a memory error was reported before Agent::Run: " + text};
  for (const std::string& key : keys)
    if (!addresses_.Holds(key))
      return {StatusCode::kInvalidArgument, "memory error in tensor '" + key + "', which is not registered: " + text};
  // An update that the device has finished is no longer under way: the lock that follows at once must not find it torn.
  if (pass_.IsItsThread()) commits_.NoteSettled();
  const TimePoint now = SteadyClock::SteadyNow();
  core::FaultReport fault;
  fault.suspect_from = begun_steps_.SuspectFrom(when, gate_.Word().step.value(), page_.begun().value());
  fault.kind = keys.empty() ? core::FaultKind::kMemoryHigh : core::FaultKind::kMemoryLow;
  fault.damaged_keys = keys;
  fault.text = text;
  fault.step = page_.begun();
  fault.since = when.known == ErrorTime::Known::kAt ? std::min(when.at, now) : now;
  fault.in_update = gate_.Tear();
  page_.Mark(core::StateMark::kWriting);
  Signal(std::move(fault));
  return Interrupted("memory error");
}

Status FaultReports::Damage(const std::vector<AddressRange>& damaged, const std::string& text, ErrorTime when) {
  const Result<std::vector<std::string>> renewed = addresses_.Renew(damaged);
  if (!renewed.ok()) return MemoryError({}, text + "; " + renewed.status().message(), when);
  return MemoryError(*renewed, text, when);
}

Status FaultReports::CudaError(int error, int query, const std::vector<AddressRange>& damaged, const std::string& text,
                               ErrorTime when) {
  const device::CudaErrorClass found = device::ClassifyCudaError(error, query, !damaged.empty());
  const std::string what = found.name + ": " + text;
  log_->Write(LogLevel::kWarning, LogLine("cuda_error", {{"rank", self_.options.rank.ToString()},
                                                         {"error", found.name},
                                                         {"context_lost", found.context_lost ? "yes" : "no"},
                                                         {"rung", std::string(device::CudaRungName(found.rung))}}));
  switch (found.rung) {
    case device::CudaRung::kNone:
      return {StatusCode::kInternal, what + " (no fault of the device)"};
    case device::CudaRung::kPatch:
      return Damage(damaged, what, when);
    case device::CudaRung::kRebuild:
      return MemoryError({}, what, when);
    case device::CudaRung::kRespawn:
    case device::CudaRung::kRespawnElsewhere:
      break;
  }
  // No process can have a second context: whatever it does from here on fails.
  return GiveWay(what + (found.context_lost ? "; the context is lost" : "; there is no usable device") +
                 ": this process is to be replaced");
}

Status FaultReports::GiveWay(const std::string& why) {
  leaves_ = true;
  // The run goes on with a new process; the stop handler frees the trainer's thread, wherever it is.
  thread_.Call([this, why] { orders_.End({1, why}); });
  return {StatusCode::kEnded, why};
}

}  // namespace kintsugi
