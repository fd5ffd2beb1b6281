#include "runtime/core/agent_news.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

constexpr size_t kFaultsKept = 64;
constexpr size_t kInexactKept = 64;

}  // namespace

void AgentNews::AddFault(const FaultReport& fault) {
  if (faults_.size() < kFaultsKept) faults_.push_back(fault);
}

bool AgentNews::has_damage() const {
  return std::any_of(faults_.begin(), faults_.end(), [](const FaultReport& fault) {
    return fault.kind == FaultKind::kMemoryLow || fault.kind == FaultKind::kMemoryHigh;
  });
}

void AgentNews::AddInexact(const std::string& text) {
  if (inexact_.size() < kInexactKept) inexact_.push_back({text});
}

bool AgentNews::OnRollback() {
  faults_.erase(faults_.begin(), faults_.begin() + static_cast<ptrdiff_t>(std::min(verified_faults_, faults_.size())));
  return std::none_of(faults_.begin(), faults_.end(),
                      [](const FaultReport& fault) { return fault.kind == FaultKind::kMemoryHigh; });
}

void AgentNews::EnterGate(Step step) {
  gate_ = step;
  at_gate_ = true;
}

bool AgentNews::LeaveGate(Step step) { return gate_ == step && std::exchange(at_gate_, false); }

bool AgentNews::LeaveSavePoint() { return std::exchange(save_point_, std::nullopt).has_value(); }

bool AgentNews::BeginSnapshot(Step step, Step keep) {
  if (snapshot_step_ == step) return false;
  KeepSnapshots();
  KeepOnly(keep);
  snapshot_step_ = step;
  return true;
}

void AgentNews::KeepOnly(Step counts) {
  std::erase_if(kept_, [counts](const SnapshotReport& report) { return report.step != counts; });
  counts_ = counts;
}

// Whether it counts the next order says.
void AgentNews::KeepSnapshots() {
  for (SnapshotReport& report : snapshots_) {
    if (report.code != StatusCode::kOk) continue;
    report.counts = true;
    kept_.push_back(std::move(report));
  }
  snapshots_.clear();
}

void AgentNews::OnGeneration() {
  gate_.reset();
  at_gate_ = false;
  snapshot_step_.reset();
  KeepSnapshots();
  std::erase_if(faults_, [](const FaultReport& fault) {
    return fault.kind != FaultKind::kMemoryLow && fault.kind != FaultKind::kMemoryHigh;
  });
}

void AgentNews::OnReleased(Step keep) {
  KeepOnly(keep);
  finished_.reset();
  save_point_.reset();
}

std::vector<AgentMessage> AgentNews::Again(bool locked) const {
  KINTSUGI_CHECK(!at_gate_ || gate_, "a rank waits at the gate of no step");
  std::vector<AgentMessage> said;
  if (published_) said.push_back(*published_);
  for (const SnapshotReport& report : kept_)
    if (report.step == counts_) said.push_back(report);
  if (ready_) said.push_back(*ready_);
  said.insert(said.end(), faults_.begin(), faults_.end());
  said.insert(said.end(), inexact_.begin(), inexact_.end());
  if (locked) return said;
  if (finished_) said.push_back(*finished_);
  if (save_point_) said.push_back(*save_point_);
  // One that it has passed too: a controller that took over does not know that it opened, and others may not have heard.
  if (gate_) said.push_back(GateEntered{*gate_});
  said.insert(said.end(), snapshots_.begin(), snapshots_.end());
  return said;
}

}  // namespace kintsugi::core
