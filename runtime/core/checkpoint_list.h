// CheckpointList: which checkpoints are complete, oldest first, and why the newest one that was put aside is of no use.
//
// Threads: none.
// Invariants: one entry for each step and directory; at most kMax, the oldest goes first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/policy.h"

namespace kintsugi::core {

class CheckpointList {
 public:
  static constexpr size_t kMax = 16;

  // What is known before the first one is published.
  void Begin(std::vector<Checkpoint> known) { all_ = std::move(known); }
  // One became visible. False: it is the newest already, said again.
  bool Publish(const Checkpoint& checkpoint);
  // It cannot be read, or fits no rank.
  void PutAside(const Checkpoint& checkpoint, const std::string& why);

  // They are of a history that was given up: what is made of these steps now is something else.
  void ForgetFrom(Step step);

  // Null: there is none.
  const Checkpoint* newest() const { return all_.empty() ? nullptr : &all_.back(); }
  // ... that holds no update from this one on, which may hold damage; none: any will do.
  const Checkpoint* NewestBefore(std::optional<Step> suspect_from) const;
  // What is wrong with the one that was put aside last; empty: none was.
  const std::string& damage() const { return damage_; }

 private:
  std::vector<Checkpoint> all_;
  std::string damage_;
};

}  // namespace kintsugi::core
