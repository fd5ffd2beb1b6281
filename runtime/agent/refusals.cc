#include "runtime/agent/refusals.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/agent/step_news.h"
#include "runtime/base/host_name.h"

namespace kintsugi {
namespace {

constexpr char kLosses[] = "veto.losses";

// A rank that refuses a step waits so long for the first one to do so, and for that to come here: all may find the same, and one
// failure is told, not one of each, which many ranks would take for a program that fails again and again. What all have summed up
// all find, and who has found something in what is its own can say more: it comes first.
Duration PatienceOf(bool is_first, bool of_all, int ranks) {
  if (of_all) return std::chrono::milliseconds(is_first ? 300 : 1000);
  return is_first ? Duration::zero() : std::chrono::milliseconds(50 + ranks);
}
constexpr size_t kLongestReason = 500;

// Losses by which a spike is told, as a mirrored object: who takes a lost rank's place tells it alike.
ShardedObject LossesOf(core::StepRules& rules) {
  ShardedObject object;
  object.key = kLosses;
  object.kind = ObjectKind::kMirrored;
  object.take_over = TakeOver::kRankZero;
  object.context = &rules;
  object.capture = [](void* context, std::vector<uint8_t>* out) {
    const std::vector<double>& losses = static_cast<core::StepRules*>(context)->losses();
    const auto* const bytes = reinterpret_cast<const uint8_t*>(losses.data());
    out->insert(out->end(), bytes, bytes + losses.size() * sizeof(double));
  };
  object.restore = [](void* context, const uint8_t* bytes, uint64_t size_bytes) -> Status {
    std::vector<double> losses(size_bytes / sizeof(double));
    if (size_bytes != losses.size() * sizeof(double))
      return {StatusCode::kDataLoss, std::to_string(size_bytes) + " bytes are no losses"};
    if (!losses.empty()) std::memcpy(losses.data(), bytes, size_bytes);
    static_cast<core::StepRules*>(context)->TakeLosses(std::move(losses));
    return Status::Ok();
  };
  return object;
}

// Agent::Join has refused what cannot be read.
core::Veto RulesOf(const std::string& veto) {
  const Result<core::Veto> parsed = core::Veto::Parse(veto);
  return parsed.ok() ? *parsed : core::Veto();
}

}  // namespace

Refusals::Refusals(const Membership& self, Registration& registered, const Gate& gate, FaultReports& reports,
                   std::shared_ptr<LogSink> log)
    : self_(self),
      registered_(registered),
      gate_(gate),
      reports_(reports),
      log_(std::move(log)),
      rules_(RulesOf(self.options.veto)) {}

Status Refusals::Allow(int most) {
  if (registered_.begun())
    return {StatusCode::kFailedPrecondition, "AllowRejects after Agent::Run: it is part of what a rank registers"};
  if (most < 0)
    return {StatusCode::kInvalidArgument, "AllowRejects: " + std::to_string(most) + " steps cannot be left out"};
  const bool is_new = !most_;
  most_ = rules_.veto().most.value_or(most);
  return is_new && rules_.veto().spike > 0 ? registered_.AddOwnObject(LossesOf(rules_)) : Status::Ok();
}

Status Refusals::CheckRules() const {
  if (most_ || !rules_.veto().has_rules()) return Status::Ok();
  return {StatusCode::kFailedPrecondition, "--veto " + self_.options.veto +
                                               ": this program leaves no steps out: call Agent::AllowRejects "
                                               "(kintsugi_allow_rejects) before its training begins, and pass by what "
                                               "LeftOut says; or start it without --veto"};
}

void Refusals::NoteLoss(double loss, std::span<const uint64_t> samples) {
  if (most_ && rules_.veto().has_rules()) rules_.NoteLoss(loss, samples);
}

bool Refusals::AsksNorm(Step step) const { return most_ && !case_.LeftOut(step) && rules_.AsksNorm(); }

Status Refusals::BeginStep(Step step) {
  if (!most_) return Status::Ok();
  case_.Begin(step);
  rules_.Begin();
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

Status Refusals::Reject(Step step, const std::string& why, uint64_t back, bool of_all) {
  if (!most_)
    return {StatusCode::kFailedPrecondition,
            "Reject(" + step.ToString() + ") without AllowRejects, which all ranks call before Agent::Run"};
  const core::GateWord now = gate_.Word();
  const bool is_before = now.state == core::GateState::kCommitted && now.step.Next() == step && case_.step() == step;
  if (!now.locked && !is_before)
    return {StatusCode::kFailedPrecondition, "Reject(" + step.ToString() +
                                                 ") outside of that step, or behind its gate: a step is refused "
                                                 "before it changes anything"};
  return Refuse(step, why, back, of_all);
}

Status Refusals::Refuse(Step step, const std::string& why, uint64_t back, bool of_all) {
  if (step == case_.step()) case_.Refuse(why.empty() ? "no reason is given" : why.substr(0, kLongestReason), back);
  const bool is_first = self_.options.rank == (crew_.empty() ? Rank(0) : crew_.front());
  const TimePoint until = SteadyClock::SteadyNow() + PatienceOf(is_first, of_all, self_.options.world_size);
  while (!gate_.SeemsLocked()) {
    if (SteadyClock::SteadyNow() >= until) return Refused(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Interrupted("Reject");
}

Status Refusals::PassGate(Step step) {
  if (!most_) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(JudgeByRules(step));
  KINTSUGI_RETURN_IF_ERROR(Judge(step));
  if (step == case_.step() && !case_.LeftOut(step)) rules_.PassGate();
  return Status::Ok();
}

Status Refusals::JudgeByRules(Step step) {
  if (step != case_.step() || case_.LeftOut(step) || !case_.why().empty()) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(const std::optional<core::StepRules::Refusal> refusal, rules_.Judge());
  return refusal ? Refuse(step, refusal->why, rules_.veto().back, refusal->of_all) : Status::Ok();
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
  if (!most_) return Status::Ok();
  core::StepFacts facts = case_.Tell(call.step);
  // Others cut batches otherwise: what was left out comes in other steps.
  if (crew_ != call.crew) facts.left_out.clear();
  return TellStep(call, facts);
}

Status Refusals::Hear(HandlerContext& call) {
  if (!most_) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(const core::StepNews told, HearStep(call));
  const std::optional<core::StepVerdict> verdict = case_.Learn(call.step, told);
  // Others cut batches otherwise: what was computed among them is not computed again.
  if (crew_ != call.crew) case_.ForgetNumbers();
  crew_ = call.crew;
  const std::string said = verdict ? verdict->Describe(call.step.Next()) : case_.DescribeBack(call.step);
  if (!said.empty()) call.remark += (call.remark.empty() ? "" : "; ") + said;
  return Status::Ok();
}

std::vector<Step> Refusals::left_out() const {
  std::vector<Step> steps;
  for (const uint64_t step : case_.all_left_out()) steps.push_back(Step(step));
  return steps;
}

}  // namespace kintsugi
