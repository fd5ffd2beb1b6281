#include "runtime/agent/guard.h"

#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

Status Guard::Begin(bool pulled) {
  KINTSUGI_RETURN_IF_ERROR(registered_.CheckState());
  // What the trainer begins with may still be on its way there, and would come over what a repair brings.
  if (const auto& device = registered_.registry().device_memory()) KINTSUGI_RETURN_IF_ERROR(device->Settle());
  KINTSUGI_CHECK(position_.at() == TrainerAt::kOutside, "the guard begins once");
  pulled_ = pulled;
  registered_.Seal();
  // Its launcher has the signal too, and saves.
  if (self_.options.page_fd >= 0) stop_signal_.Take(self_.options.warning_signals);
  offer_.Begin();
  for (const std::string& injection : self_.join.injections) armed_.Arm(injection, self_.options.rank);
  stop_.Open();
  registered_.Begin();
  position_.Go(TrainerAt::kParked);
  relocations_.TellReady();
  parking_.Park(core::TrainerParked::Outcome::kReady);
  return Status::Ok();
}

Result<GuardTask> Guard::NextTask(TimePoint until) {
  if (position_.at() != TrainerAt::kParked && position_.at() != TrainerAt::kAtSavePoint)
    return position_.Misplaced("NextTask");
  const bool parked = position_.at() == TrainerAt::kParked;
  // A release taken at a save point came out of the loop by way of kUnwind.
  if (parked && std::exchange(released_at_save_point_, false)) return EnterLoop();
  for (;;) {
    const Inbox::Taken taken = inbox_.Take(until);
    switch (taken.kind) {
      case Inbox::Taken::Kind::kNothing:
        return GuardTask{};
      case Inbox::Taken::Kind::kEnd:
        // At a save point the end comes once the loop has been left.
        return parked ? End(taken.end) : Unwind(Step(gate_.Word().step));
      case Inbox::Taken::Kind::kOrder:
        if (tasks_.Begin(*taken.order, taken.cancel)) return tasks_.open();
        break;
      case Inbox::Taken::Kind::kRelease:
        tasks_.OnRelease();
        pass_.OnRelease(taken.release);
        if (parked) return EnterLoop();
        released_at_save_point_ = true;
        return Unwind(taken.release.step);
      case Inbox::Taken::Kind::kContinue:
        if (parked) break;
        position_.Go(TrainerAt::kInLoop);
        return GuardTask{TaskKind::kContinue, Step(gate_.Word().step), nullptr, {}};
    }
  }
}

GuardTask Guard::EnterLoop() {
  KINTSUGI_CHECK(position_.at() == TrainerAt::kParked, "the loop is entered from where it was left");
  pass_.Begin();
  reports_.BeginPass();
  activities_.Clear();
  position_.Go(TrainerAt::kInLoop);
  return {TaskKind::kLoop, pass_.released_at(), nullptr, {}};
}

GuardTask Guard::Unwind(Step step) {
  KINTSUGI_CHECK(position_.at() == TrainerAt::kAtSavePoint, "a loop is unwound from a save point");
  position_.Go(TrainerAt::kInLoop);
  return {TaskKind::kUnwind, step, nullptr, {}};
}

GuardTask Guard::End(const Inbox::RunEnd& end) {
  position_.Go(TrainerAt::kEnded);
  exit_code_ = end.exit_code;
  stop_signal_.PutBack();
  if (pulled_) CloseToTrainer();  // in Run it is Leave's, which calls the exit handler after it
  return {TaskKind::kEnded, Step(gate_.Word().step), nullptr, end.text};
}

Status Guard::LeaveLoop(const Status& status, LoopEnd end, const std::string& signature) {
  if (end == LoopEnd::kRefused && status.ok()) return {StatusCode::kInvalidArgument, "a refusal says what was refused"};
  if (position_.at() != TrainerAt::kInLoop && position_.at() != TrainerAt::kAtSavePoint)
    return position_.Misplaced("LeaveLoop");
  position_.Go(TrainerAt::kParked);
  if (!inbox_.ending() && !released_at_save_point_) parking_.LeaveLoop(status, end, signature);
  return Status::Ok();
}

Status Guard::AtSavePoint() {
  position_.Go(TrainerAt::kAtSavePoint);
  if (pulled_) return Interrupted("save point");  // at_save_point() tells it from an incident
  while (position_.at() == TrainerAt::kAtSavePoint) {
    KINTSUGI_ASSIGN_OR_RETURN(const GuardTask task, NextTask(TimePoint::Max()));
    if (task.kind == TaskKind::kContinue) return Status::Ok();
    if (task.kind == TaskKind::kUnwind) break;
    KINTSUGI_RETURN_IF_ERROR(tasks_.CarryOut());
  }
  return Interrupted("save point");
}

Status Guard::Run(LoopFunction loop, void* context) {
  if (!loop) return {StatusCode::kInvalidArgument, "Agent::Run needs a loop function"};
  if (!registered_.begun()) KINTSUGI_RETURN_IF_ERROR(registered_.CheckHandlers());
  KINTSUGI_RETURN_IF_ERROR(Begin(/*pulled=*/false));
  for (;;) {
    KINTSUGI_ASSIGN_OR_RETURN(const GuardTask task, NextTask(TimePoint::Max()));
    if (task.kind == TaskKind::kEnded) return Leave();
    KINTSUGI_RETURN_IF_ERROR(task.kind == TaskKind::kLoop ? RunLoop(loop, context) : tasks_.CarryOut());
  }
}

Status Guard::RunLoop(LoopFunction loop, void* context) {
  Status status;
  bool threw = true;
  try {
    status = loop(pass_.released_at(), context);
    threw = false;
  } catch (const std::exception& e) {
    status = {StatusCode::kInternal, e.what()};
  } catch (...) {
    status = {StatusCode::kInternal, "something that is no std::exception"};
  }
  return LeaveLoop(status, threw ? LoopEnd::kThrew : LoopEnd::kStatus, {});
}

Status Guard::Leave() {
  const std::optional<Inbox::RunEnd> end = inbox_.end();
  KINTSUGI_CHECK(end, "the guard is left before the run has ended");
  exit_code_ = end->exit_code;
  CloseToTrainer();
  CallExit();
  if (exit_code_ == 0) return Status::Ok();
  return {StatusCode::kEnded, end->text};
}

void Guard::CallExit() {
  CancelToken never;
  HandlerContext call;
  call.rank = self_.options.rank;
  call.world_size = self_.options.world_size;
  call.generation = pass_.generation();
  call.step = Step(gate_.Word().step);
  call.deadline = TimePoint::Max();
  call.cancel = &never;
  const Status last = registered_.handlers().Call(HandlerKind::kExit, call);
  if (!last.ok()) log_->Write(LogLevel::kError, LogLine("exit_failed", {{"why", last.message()}}));
}

// Returns when no handler runs, none will, and nothing reads registered memory.
void Guard::CloseToTrainer() {
  KINTSUGI_CHECK(position_.at() == TrainerAt::kEnded, "the trainer is left alone once its run has ended");
  stop_.Close();
  if (registered_.snapshots()) registered_.snapshots()->Stop();  // a copy under way reads registered memory
}

}  // namespace kintsugi
