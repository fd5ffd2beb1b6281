#include "runtime/agent/steps.h"

#include <algorithm>
#include <string>

#include "kernels/host_checksum.h"
#include "runtime/base/check.h"

namespace kintsugi {

using core::GateState;
using core::GateWord;

Status Steps::Poll() const {
  if (gate_.SeemsLocked()) [[unlikely]]
    return Interrupted("poll");
  return Status::Ok();
}

// Under a lock the word may be anywhere: what follows then is settled by the incident.
Status Steps::CheckStep(const char* where, Step step) const {
  const GateWord now = gate_.Word();
  if (now.locked) return Status::Ok();
  const Step next = now.state == GateState::kCommitted ? now.step.Next() : now.step;
  if (step == next) [[likely]]
    return Status::Ok();
  return {StatusCode::kFailedPrecondition,
          std::string(where) + "(" + step.ToString() + ") while the rank is " +
              std::string(core::GateStateName(now.state)) + "(" + now.step.ToString() + "): step " + next.ToString() +
              " is the one to compute; each step has its update, an empty one where it is skipped"};
}

Status Steps::CheckBegin(Step step) {
  KINTSUGI_RETURN_IF_ERROR(pass_.CheckThread("BeginStep"));
  if (const GateWord now = gate_.Word(); !now.locked && now.state != GateState::kCommitted) [[unlikely]]
    return {StatusCode::kFailedPrecondition,
            "BeginStep(" + step.ToString() + ") within update " + now.step.ToString() + ": EndUpdate ends it"};
  KINTSUGI_RETURN_IF_ERROR(CheckStep("BeginStep", step));
  if (!pass_.BeginStep(step) && !gate_.Word().locked) [[unlikely]]
    return {StatusCode::kFailedPrecondition, "BeginStep(" + step.ToString() + ") twice"};
  return Status::Ok();
}

Status Steps::Begin(Step step) {
  KINTSUGI_RETURN_IF_ERROR(CheckBegin(step));
  const TimePoint now = SteadyClock::SteadyNow();
  reports_.NoteBegun(step, now);
  SharedWords& words = page_.words();
  words.progress.store(PackProgress(step.value(), TrainPhase::kForward, activities_.now()), std::memory_order_seq_cst);
  words.progress_ns.store(static_cast<uint64_t>(now.nanoseconds()), std::memory_order_relaxed);
  if (gate_.Word().locked) return Interrupted("BeginStep");
  told_.Begin();
  KINTSUGI_RETURN_IF_ERROR(refusals_.BeginStep(step));
  commits_.NoteSettled();
  if (pass_.TellResumed()) {
    words.resumed_generation.store(pass_.generation().value(), std::memory_order_release);
    thread_.Post(core::TrainerResumed{});
  }
  const Step boundary = step.Previous();
  if (snapshots_.IsDue(boundary)) [[unlikely]]
    snapshots_.Take(boundary);
  return IsSavePoint(boundary) ? SaveAt(boundary) : Status::Ok();
}

bool Steps::IsSavePoint(Step boundary) const {
  const uint64_t pause = inbox_.pause_at();
  const auto every = [&](uint64_t steps) { return steps > 0 && boundary.value() % steps == 0; };
  const bool due = every(self_.join.save_every) || every(self_.join.verify_every);
  return boundary > pass_.released_at() && (due || (pause > 0 && boundary.value() >= pause));
}

Status Steps::SaveAt(Step boundary) {
  KINTSUGI_RETURN_IF_ERROR(commits_.Settle());
  thread_.Post(core::TrainerAtSavePoint{boundary, offer_.is_ahead_at(boundary)});
  return guard_.AtSavePoint();
}

Status Steps::Report(Step step, double loss, std::span<const uint64_t> samples) {
  refusals_.NoteLoss(loss, samples);
  return told_.Note(step, loss, samples);
}

Status Steps::ReportNorm(Step step, double norm) {
  KINTSUGI_RETURN_IF_ERROR(CheckStep("ReportNorm", step));
  refusals_.NoteNorm(norm);
  return Status::Ok();
}

Status Steps::EnterPhase(Step step, TrainPhase phase) {
  // After its commit a step is still marked: its parameters are gathered.
  if (step != gate_.Word().step) KINTSUGI_RETURN_IF_ERROR(CheckStep("EnterPhase", step));
  std::atomic<uint64_t>& progress = page_.words().progress;
  const Progress before = UnpackProgress(progress.load(std::memory_order_relaxed));
  progress.store(PackProgress(step.value(), phase, activities_.now(),
                              before.step == step.value() ? before.collectives : 0),
                 std::memory_order_relaxed);
  if (phase == TrainPhase::kForward) injections_.SlowDown();
  if (!armed_.any()) [[likely]]
    return Status::Ok();
  return injections_.StrikeIfDue(step,
                                 [&](const Injection& fault) { return fault.collective == 0 && fault.phase == phase; });
}

Status Steps::BeginCollective() {
  const int number = pass_.BeginCollective();
  std::atomic<uint64_t>& progress = page_.words().progress;
  const uint64_t place = progress.load(std::memory_order_relaxed);
  progress.store(WithCollectives(place, static_cast<uint32_t>(number)), std::memory_order_relaxed);
  if (!armed_.any()) [[likely]]
    return Status::Ok();
  const Step step(UnpackProgress(place).step);
  return injections_.StrikeIfDue(step, [&](const Injection& fault) { return fault.collective == number; });
}

Status Steps::BeginCollective(std::span<uint8_t> given) {
  if (const Status struck = BeginCollective(); !struck.ok()) {
    if (!injections_.TakeFlip() || given.empty()) return struck;
    // The highest bit of the exponent of the number in the middle, whatever float it is.
    given[std::min(given.size() / 2 | 7, given.size() - 1)] ^= 0x40;
  }
  if (refusals_.allowed())
    refusals_.NoteComputed("", BlockChecksum(ChecksumAlgorithm::kXxh3, given.data(), given.size()));
  return Status::Ok();
}

}  // namespace kintsugi
