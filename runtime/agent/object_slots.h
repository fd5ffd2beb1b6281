// ObjectSlots: the bytes of the mirrored objects of this rank and its partners at the newest two steps, in a memory
// file: so they outlive the process with its tensors, and its replacement finds the ones of the step it adopts.
//
// Layout: two slots. A slot names its step last, and no step while it is being written: a process may be killed at any
// instruction. What is written goes where an abandoned step lies, else into the older of the two: so bytes of one step
// that are written anew leave those before them in place until they are whole.
// Threads: one.
// Ownership: its file and mapping.
// Errors: Create, Write: kResourceExhausted. Open: kInvalidArgument, the file is none of these. Read: kNotFound.
#pragma once

#include <cstdint>
#include <vector>

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
  Result<bool> Write(Step step, const std::vector<uint8_t>& bytes, bool ahead = false);
  Result<std::vector<uint8_t>> Read(Step step) const;
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
  void Fill(Step step, const std::vector<uint8_t>& bytes, bool ahead);

  SharedMemory memory_;
};

}  // namespace kintsugi
