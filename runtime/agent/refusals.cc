#include "runtime/agent/refusals.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "runtime/base/host_name.h"
#include "runtime/base/json.h"

namespace kintsugi {
namespace {

// A rank that refuses a step waits so long for rank 0 to do so: all may find the same, and one failure is told, not one of each.
constexpr auto kPatience = std::chrono::milliseconds(50);
constexpr size_t kLongestReason = 500;

std::string KeyOf(Rank rank) { return "refused/" + rank.ToString(); }

std::vector<uint8_t> Encoded(const core::StepFacts& facts) {
  nlohmann::json told = {{"why", facts.why},   {"doubts", facts.doubts},     {"times", facts.times},
                         {"differs", nullptr}, {"left_out", facts.left_out}, {"all_left_out", facts.all_left_out}};
  if (facts.differs) told["differs"] = *facts.differs;
  const std::string text = told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return {text.begin(), text.end()};
}

Result<core::StepFacts> Decoded(const std::vector<uint8_t>& bytes, Rank rank) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument told,
                            JsonDocument::Parse(text, {.place = "rank " + rank.ToString() + " of a refused step",
                                                       .code = StatusCode::kDataLoss}));
  core::StepFacts facts;
  std::vector<uint64_t> left_out;
  KINTSUGI_RETURN_IF_ERROR(told.Root().Read("why", &facts.why, "doubts", &facts.doubts, "times", &facts.times,
                                            "differs", &facts.differs, "left_out", &facts.left_out, "all_left_out",
                                            &left_out));
  facts.all_left_out = {left_out.begin(), left_out.end()};
  return facts;
}

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
  const bool is_first = self_.options.rank == Rank(0);
  const TimePoint until = SteadyClock::SteadyNow() + (is_first ? Duration::zero() : Duration(kPatience));
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

Status Refusals::Exchange(HandlerContext& call) {
  if (!most_ || call.begins) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(call.store->Set(KeyOf(call.rank), Encoded(case_.Tell(call.step))));
  std::map<Rank, core::StepFacts> told;
  for (int number = 0; number < call.world_size; ++number) {
    const Rank rank = call.RankOf(number);
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, call.store->Get(KeyOf(rank), call.deadline));
    KINTSUGI_ASSIGN_OR_RETURN(told[rank], Decoded(bytes, rank));
  }
  const std::optional<core::StepVerdict> verdict = case_.Learn(call.step, told);
  if (verdict) call.remark += (call.remark.empty() ? "" : "; ") + verdict->Describe(call.step.Next());
  return Status::Ok();
}

std::vector<Step> Refusals::left_out() const {
  std::vector<Step> steps;
  for (const uint64_t step : case_.all_left_out()) steps.push_back(Step(step));
  return steps;
}

}  // namespace kintsugi
