#include "runtime/agent/orders.h"

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"

namespace kintsugi {

void Orders::Act(const core::AgentAction& action) {
  std::visit(Overloaded{
                 [&](const core::SendMessage& a) { connection_.Send(a.generation, a.message); },
                 [&](const core::LockGate&) { LockGate(); },
                 [&](const core::Interrupt& a) { Interrupt(a.verdict); },
                 [&](const core::RunOnTrainer& a) { inbox_.PutOrder(a); },
                 [&](const core::CancelHandler&) { CancelTask(); },
                 [&](const core::SetCommitted& a) { gate_.SetCommitted(a.step); },
                 [&](const core::ReleaseTrainer& a) {
                   inbox_.PutRelease({a.generation, a.step, a.whole});
                 },
                 [&](const core::ContinueTrainer&) { inbox_.PutContinue(); },
                 [&](const core::StorePause& a) { StorePause(a.step); },
                 [&](const core::OpenGate& a) { inbox_.OpenGate(a.step); },
                 [&](const core::StoreAnswered& a) { store_.OnAnswered(a.reply); },
                 [&](const core::ArmInjection& a) { armed_.Arm(a.injection, self_.options.rank); },
                 [&](const core::EndTrainer& a) {
                   End({a.exit_code, a.text});
                 },
                 [&](const core::ArmSnapshot& a) { snapshots_.Arm(a); },
                 [&](const core::TellMarks& a) { lookout_.Look(a.round); },
             },
             action);
}

void Orders::LockGate() {
  const Inbox::Locked locked = inbox_.LockGate();
  KINTSUGI_CHECK(gate_.Word().locked, "a locked gate stays so until a release is put");
  snapshots_.Abort();
  if (locked.dropped_release)
    thread_.Step(core::TrainerParked{core::TrainerParked::Outcome::kInterrupted, locked.before, {}});
  thread_.Step(core::GateLocked{locked.before});
}

void Orders::Interrupt(const core::StopOrder& order) {
  inbox_.PutVerdict(order);
  stop_.Stop(order);
}

void Orders::CancelTask() {
  const Inbox::Withdrawn withdrawn = inbox_.WithdrawOrder();
  store_.CancelWaits();
  if (withdrawn.cancel) withdrawn.cancel->Cancel();
  stop_.StopAgain();
  if (const auto& order = withdrawn.order)  // the trainer's thread had not taken it yet
    thread_.Post(
        core::HandlerDone{order->generation, {order->order.phase, StatusCode::kCancelled, "superseded", 0, {}}});
}

// Both sides write first and look then: the trainer's thread its progress, this one the pause.
void Orders::StorePause(Step step) {
  inbox_.StorePause(step);
  thread_.Step(core::PauseStored{page_.begun()});
}

void Orders::End(const Inbox::RunEnd& end) {
  if (!inbox_.BeginEnd()) return;
  connection_.ForwardReports();
  const std::shared_ptr<CancelToken> cancel = inbox_.PutEnd(end);
  connection_.EndJoin({StatusCode::kEnded, end.text});
  store_.End();
  if (cancel) cancel->Cancel();
  snapshots_.Abort();
  stop_.StopForGood();
}

void Orders::OnThrown(const std::string& what) {
  log_->Write(LogLevel::kError, LogLine("agent_failed", {{"rank", self_.options.rank.ToString()}, {"what", what}}));
  End({1, "the agent failed: " + what});
}

}  // namespace kintsugi
