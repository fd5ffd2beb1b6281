// StateOffer: what the trainer's thread does for state that outlives its process: when it is offered to the launcher,
// marked as unfinished, adopted; and the mirrored objects that go with it.
//
// Threads: the trainer's.
// Ownership: the keeper and the memory that it hands out.
// Errors: Prepare: as StateKeeper::Adopt. What cannot be offered is a warning in the controller's log.
// Invariants: before a task writes the first byte of registered memory the page says so.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/agent/membership.h"
#include "runtime/agent/rank_page.h"
#include "runtime/agent/registration.h"
#include "runtime/agent/state_keeper.h"
#include "runtime/base/log.h"
#include "runtime/core/agent_core.h"

namespace kintsugi {

class StateOffer {
 public:
  StateOffer(const Membership& self, const Registration& registered, RankPage& page, std::shared_ptr<LogSink> log)
      : self_(self), registered_(registered), page_(page), keeper_(registered.registry(), std::move(log)) {}

  StateKeeper& keeper() { return keeper_; }
  // The registry is sealed.
  void Begin();
  // Again where it has moved.
  void Offer();
  Status Withdraw() { return keeper_.Withdraw(); }
  // What its process holds now outlives it.
  bool held() const { return held_; }
  // Why it could not be offered; empty: it was, or nobody wants it.
  const std::string& warning() const { return warning_; }

  bool has_mirrored() const { return has_mirrored_; }
  // Mirrored objects of `step`: to the partners, and into memory that outlives the process.
  Status Mirror(Step step, const MirroredObjects& objects);
  // This rank's own, of the step that it has committed: newer than what its partners have of it.
  void Refresh(Step step, const MirroredObjects& objects);
  // Whether the partners lack what this rank has of that step.
  bool is_ahead_at(Step step) const { return ahead_at_ == step; }
  // Before REPAIR and ROLLBACK: a process that is killed within them must not leave half a state for a whole one.
  Status Prepare(const core::PhaseOrder& order);

 private:
  const Membership& self_;
  const Registration& registered_;
  RankPage& page_;
  StateKeeper keeper_;
  bool has_mirrored_ = false;
  std::optional<Step> ahead_at_;  // the step of this rank's newest bytes, where its partners have not got them
  std::string warning_;
  bool held_ = false;
};

}  // namespace kintsugi
