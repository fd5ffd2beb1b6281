// ObjectSlots: the bytes of the mirrored objects of this rank and its partners at the newest two steps, in a memory
// file: so they outlive the process with its tensors, and its replacement finds the ones of the step it adopts.
//
// Layout: two slots. A slot names its step last, and no step while it is being written: a process may be killed at any
// instruction. What is written goes where an abandoned step lies, else into the older of the two: so bytes of one step
// that are written anew leave those before them in place until they are whole. In a slot lie frames {rank, size of the key,
// size of the object, key, object}, large objects first: what lies there already, the very bytes at the very place, is not
// written again.
// Threads: one.
// Ownership: its file and mapping.
// Errors: Create, Write: kResourceExhausted. Open: kInvalidArgument, the file is none of these. Read: kNotFound; kDataLoss,
// what lies there is no frames.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "callbacks/state/mirrored.h"
#include "callbacks/state/shared_memory.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

class ObjectSlots {
 public:
  static Result<ObjectSlots> Create(uint64_t bytes_per_step);
  // What a process that is gone has left.
  static Result<ObjectSlots> Open(UniqueFd file);

  // True: they did not fit, and everything lies in a new file now. `ahead`: the partners lack this rank's own.
  Result<bool> Write(Step step, const std::vector<RankObjects>& known, bool ahead = false);
  Result<std::vector<RankObjects>> Read(Step step) const;
  bool IsAhead(Step step) const;
  int fd() const { return memory_.memory().shared_fd; }

 private:
  struct Slot;
  explicit ObjectSlots(SharedMemory memory) : memory_(std::move(memory)) {}
  uint64_t Capacity() const;
  Slot* At(uint64_t number) const;
  // Which of the two the next bytes go to.
  Slot* For(Step step) const;
  // The newest bytes of a step; null: there are none.
  const Slot* Find(Step step) const;
  void Fill(Step step, const std::vector<RankObjects>& known, bool ahead);

  // An object as this process has written it.
  struct Written {
    uint64_t offset = 0;
    SharedBytes bytes;
  };

  SharedMemory memory_;
  std::array<std::vector<Written>, 2> written_;  // into each slot, ascending
};

}  // namespace kintsugi
