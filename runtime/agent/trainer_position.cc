#include "runtime/agent/trainer_position.h"

#include <string>

#include "runtime/base/check.h"

namespace kintsugi {

void TrainerPosition::BeginTask(core::Phase phase) {
  KINTSUGI_CHECK(at_ == TrainerAt::kParked || at_ == TrainerAt::kAtSavePoint, "a task begins where tasks are taken");
  before_ = at_;
  phase_ = phase;
  at_ = TrainerAt::kInTask;
}

void TrainerPosition::EndTask() {
  KINTSUGI_CHECK(at_ == TrainerAt::kInTask, "a task ends that was not begun");
  at_ = before_;
}

std::optional<core::Phase> TrainerPosition::phase() const {
  if (at_ != TrainerAt::kInTask) return std::nullopt;
  return phase_;
}

std::string_view TrainerPosition::Name() const {
  switch (at_) {
    case TrainerAt::kOutside:
      return "outside the guard: BeginGuard comes first";
    case TrainerAt::kParked:
      return "parked: NextTask comes next";
    case TrainerAt::kInLoop:
      return "in its loop: LeaveLoop comes first";
    case TrainerAt::kAtSavePoint:
      return "at a save point: NextTask comes next";
    case TrainerAt::kInTask:
      return "within a task: FinishTask comes first";
    case TrainerAt::kEnded:
      return "past the end of the run";
  }
  return "nowhere";
}

Status TrainerPosition::Misplaced(const char* call) const {
  return {StatusCode::kFailedPrecondition, std::string(call) + " while the trainer is " + std::string(Name())};
}

}  // namespace kintsugi
