#include "runtime/agent/refusals.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/agent/step_news.h"
#include "runtime/base/host_name.h"

namespace kintsugi {
namespace {

// A rank that refuses a step waits so long for the first one to do so, and for that to come here: all may find the same, and one
// failure is told, not one of each, which many ranks would take for a program that fails again and again.
Duration PatienceOf(int ranks) { return std::chrono::milliseconds(50 + ranks); }
constexpr size_t kLongestReason = 500;

}  // namespace

Status Refusals::Allow(int most) {
  if (registered_.begun())
    return {StatusCode::kFailedPrecondition, "AllowRejects after Agent::Run: it is part of what a rank registers"};
  if (most < 0)
    return {StatusCode::kInvalidArgument, "AllowRejects: " + std::to_string(most) + " steps cannot be left out"};
  most_ = most;
  return Status::Ok();
}

Status Refusals::BeginStep(Step step) {
  if (!most_) return Status::Ok();
  case_.Begin(step);
  if (case_.IsToBlame(self_.options.rank)) return GiveWay(step);
  const std::string* const why = case_.LeftOut(step);
  if (why && case_.all_left_out().size() > static_cast<size_t>(*most_))
    return {StatusCode::kFailedPrecondition, "step " + step.ToString() + " is refused (" + *why + "), and " +
                                                 std::to_string(*most_) + " have been left out: no more may be"};
  return Status::Ok();
}

Status Refusals::Refused(Step step) const {
  return {StatusCode::kInternal, "step " + step.ToString() + " is refused: " + case_.why()};
}

Status Refusals::Reject(Step step, const std::string& why) {
  if (!most_)
    return {StatusCode::kFailedPrecondition,
            "Reject(" + step.ToString() + ") without AllowRejects, which all ranks call before Agent::Run"};
  const core::GateWord now = gate_.Word();
  const bool is_before = now.state == core::GateState::kCommitted && now.step.Next() == step && case_.step() == step;
  if (!now.locked && !is_before)
    return {StatusCode::kFailedPrecondition, "Reject(" + step.ToString() +
                                                 ") outside of that step, or behind its gate: a step is refused "
                                                 "before it changes anything"};
  if (step == case_.step()) case_.Refuse(why.empty() ? "no reason is given" : why.substr(0, kLongestReason));
  const bool is_first = self_.options.rank == (crew_.empty() ? Rank(0) : crew_.front());
  const TimePoint until =
      SteadyClock::SteadyNow() + (is_first ? Duration::zero() : PatienceOf(self_.options.world_size));
  while (!gate_.SeemsLocked()) {
    if (SteadyClock::SteadyNow() >= until) return Refused(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Interrupted("Reject");
}

// Where the step was refused before and is good now, this rank's numbers may tell whose machine it was: all compare.
Status Refusals::Judge(Step step) {
  if (step != case_.step()) return Status::Ok();  // out of turn: the gate says so
  const bool is_refused = !case_.why().empty();   // and the trainer went on
  if (case_.LeftOut(step) && case_.has_numbers())
    return {
        StatusCode::kFailedPrecondition,
        "BeginUpdate(" + step.ToString() + "): all ranks leave this step out (LeftOut), and this one has computed it"};
  if (!is_refused && !case_.IsOtherThanBefore()) return Status::Ok();
  if (gate_.SeemsLocked()) return Interrupted("BeginUpdate");
  if (is_refused) return Refused(step);
  if (!MayBeReplaced()) {
    Say(step, "and the step is good now; no other process may take its place (--max-respawns), and it goes on");
    return Status::Ok();
  }
  case_.Doubt();
  return {StatusCode::kInternal,
          "step " + step.ToString() +
              " is good now that it was made again, and this rank computed otherwise than when it "
              "was refused: whose machine it was is found out"};
}

Status Refusals::GiveWay(Step step) {
  case_.Forgive();
  if (!MayBeReplaced()) {
    Say(step, "and others as before; no other process may take its place (--max-respawns), and it goes on");
    return Status::Ok();
  }
  return reports_.GiveWay(Say(step, "and others as before: a new process takes its place"));
}

std::string Refusals::Say(Step step, const std::string& then) const {
  const std::string what = "this rank computed otherwise than the first time, when step " + step.ToString() +
                           " was refused, on " + HostName() + ", " + then;
  log_->Write(LogLevel::kWarning, LogLine("computed_otherwise", {{"rank", self_.options.rank.ToString()},
                                                                 {"step", step.ToString()},
                                                                 {"host", HostName()},
                                                                 {"why", what}}));
  return what;
}

bool Refusals::MayBeReplaced() const {
  return self_.options.incarnation.value() <= static_cast<uint64_t>(std::max(self_.options.max_respawns, 0));
}

Status Refusals::Tell(const HandlerContext& call) const {
  return most_ ? TellStep(call, case_.Tell(call.step)) : Status::Ok();
}

Status Refusals::Hear(HandlerContext& call) {
  if (!most_) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(const core::StepNews told, HearStep(call));
  const std::optional<core::StepVerdict> verdict = case_.Learn(call.step, told);
  // Others cut batches otherwise: what was computed among them is not computed again.
  if (crew_ != call.crew) case_.ForgetNumbers();
  crew_ = call.crew;
  if (verdict) call.remark += (call.remark.empty() ? "" : "; ") + verdict->Describe(call.step.Next());
  return Status::Ok();
}

std::vector<Step> Refusals::left_out() const {
  std::vector<Step> steps;
  for (const uint64_t step : case_.all_left_out()) steps.push_back(Step(step));
  return steps;
}

}  // namespace kintsugi
