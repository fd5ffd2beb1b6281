// ObjectSlots: the bytes of the mirrored objects of this rank and its partners at the newest two steps, in a memory
// file: so they outlive the process with its tensors, and its replacement finds the ones of the step it adopts.
//
// Layout: two slots, step k in slot k % 2. A slot names its step last, and no step while it is being written: a process
// may be killed at any instruction.
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

  // True: they did not fit, and everything lies in a new file now.
  Result<bool> Write(Step step, const std::vector<uint8_t>& bytes);
  Result<std::vector<uint8_t>> Read(Step step) const;
  int fd() const { return memory_.memory().shared_fd; }

 private:
  struct Slot;
  explicit ObjectSlots(SharedMemory memory) : memory_(std::move(memory)) {}
  uint64_t Capacity() const;
  Slot* At(uint64_t number) const;
  void Fill(Step step, const std::vector<uint8_t>& bytes);

  SharedMemory memory_;
};

}  // namespace kintsugi
