// StateKeeper: state that outlives its process. The memory files that registered tensors lie in are offered to the
// launcher, which holds them; a process that takes the place of a dead one puts what that one left in place of its own
// (rung adopt).
//
// Threads: the trainer's.
// Ownership: the memory of Agent::AllocateState, AllocateDeviceState and ShareState; refers to the registry, which outlives it.
// Errors: Adopt: kNotFound, the launcher holds nothing; kFailedPrecondition, another state lies there. Whatever else
// fails ends in a launcher that holds nothing: then the state is streamed.
// Invariants: a launcher holds all that is registered, where it lies, or nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/state/kept_memory.h"
#include "callbacks/state/registry.h"
#include "runtime/agent/object_slots.h"
#include "runtime/base/log.h"
#include "runtime/process/state_channel.h"

namespace kintsugi {

class StateKeeper {
 public:
  StateKeeper(const StateRegistry& registry, std::shared_ptr<LogSink> log)
      : registry_(registry), log_(std::move(log)) {}

  Memory Add(std::unique_ptr<KeptMemory> memory);
  // The same place, with the file that it lies in where it is one of ours.
  void Describe(Memory* memory) const;
  // What tensors of `was` lay in, and none of the registry's does: it is gone.
  void Release(const StateRegistry& was);

  // Before anything is offered: the way to a launcher. Without one nothing is.
  void Open(UniqueFd channel);
  // All that is registered, again where it has moved, with room for mirrored objects where there are any. Empty: it is
  // held; else why it is not.
  std::string Offer(bool with_objects);
  // Nothing is held from now on.
  Status Withdraw();
  bool keeps_objects() const { return channel_ && objects_; }
  // The mirrored objects of `step`, with those of the partners: the next process must be able to give them theirs.
  // `ahead`: they lack this rank's own, and the next process must know.
  void KeepObjects(Step step, const std::vector<RankObjects>& known, bool ahead = false);
  // What was said of those that are kept, or were adopted.
  bool IsAhead(Step step) const { return objects_ && objects_->IsAhead(step); }
  // Once in the life of a process. `take` gets the mirrored objects of `step`; null: there are none.
  Status Adopt(Step step, const std::function<void(std::vector<RankObjects>)>& take);

 private:
  struct Home;
  std::optional<Home> FindHome();
  std::string OutsideMemory() const;
  Status Send(bool with_objects);

  const StateRegistry& registry_;
  const std::shared_ptr<LogSink> log_;
  std::vector<std::unique_ptr<KeptMemory>> memory_;
  std::optional<StateChannel> channel_;
  std::optional<ObjectSlots> objects_;
  bool adopted_ = false;
};

}  // namespace kintsugi
