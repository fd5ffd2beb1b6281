// HeldState: what a launcher still has of a process that is gone. State that the agent allocated lies in memory files;
// the launcher holds their descriptors, so the bytes outlive the process, and its replacement maps them (rung adopt).
//
// Pure. What a page says at the end of a process decides whether its memory is any step's.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/ids.h"
#include "runtime/core/gate_word.h"

namespace kintsugi::core {

// What a process has done to the memory that it registered. Written by the trainer's thread into the shared page,
// before the first byte changes.
enum class StateMark : uint64_t {
  kNotYet = 0,   // not released yet: what it holds is no step's, and what its predecessor left is untouched
  kWriting = 1,  // a handler, or a damage, may have left it half written
  kWhole = 2,    // in its loop: the gate's word says which step it holds
};

struct HeldState {
  Incarnation of;      // who wrote it
  Step step;           // that it stands at
  bool clean = false;  // ended from outside, or by itself: not by an error that may have written astray
  bool operator==(const HeldState&) const = default;
};

// The step that the memory of a process with this word stands at; nothing: it is no step's.
std::optional<Step> StepHeld(const GateWord& word);

// What its predecessor left is as it was. `given`: the process has mapped it; one that has not writes into memory of its
// own until it is in its loop.
bool LeavesHeldWhole(StateMark mark, bool given);

// What is held once a process has ended. `before`: what was held of its predecessors.
struct LastWords {
  Incarnation of;
  StateMark mark = StateMark::kNotYet;
  GateWord word;
  bool offered = false;  // it gave its own memory
  bool clean = false;
  bool given = true;  // it had got what was held
  bool device_behind = false;  // nobody has seen its device do the update that it committed last
};
std::optional<HeldState> HeldAfter(const std::optional<HeldState>& before, const LastWords& last);

}  // namespace kintsugi::core
