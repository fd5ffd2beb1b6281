#include "runtime/launcher/workers/worker_guard.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/process/orphans.h"

namespace kintsugi {

Status WorkerGuard::SetUp(const std::string& mark) {
  KINTSUGI_CHECK(!guardian_ && !known_.empty(), "a guard is set up twice, or knows nobody whom it is to spare");
  BecomeReaper();
  KINTSUGI_ASSIGN_OR_RETURN(guardian_, Guardian::Start(mark));
  return Status::Ok();
}

bool WorkerGuard::IsKnown(pid_t pid) const {
  return (guardian_ && pid == guardian_->pid()) ||
         std::any_of(known_.begin(), known_.end(), [pid](const auto& is_known) { return is_known(pid); });
}

size_t WorkerGuard::KillLeftBehind(const std::string& life) const {
  KINTSUGI_CHECK(!life.empty(), "what a process left behind is looked for without its mark");
  return KillOrphans(life, [this](pid_t pid) { return IsKnown(pid); });
}

void WorkerGuard::Tend() {
  if (!guardian_) return;
  Mend();
  ReapOrphans([this](pid_t pid) { return IsKnown(pid); });
}

void WorkerGuard::Mend() {
  const Result<bool> mended = guardian_->Mend();
  const std::string trouble = mended.ok() ? "" : mended.status().message();
  if (mended.ok() && *mended)
    log_->Write(LogLevel::kWarning, LogLine("guard_replaced", {{"pid", std::to_string(guardian_->pid())},
                                                               {"why", "the helper had ended"}}));
  if (!trouble.empty() && trouble != trouble_) log_->Write(LogLevel::kError, LogLine("no_guard", {{"why", trouble}}));
  trouble_ = trouble;
}

}  // namespace kintsugi
