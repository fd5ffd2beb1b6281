// StateChannel: how the memory files of a rank's state get to its launcher, and back to the process that replaces it.
//
// A process offers the files once it has registered its state, and again the one with its mirrored objects where that
// grew. The launcher keeps the descriptors; a process asks for what is held of the one before it when it is told to
// adopt.
//
// Threads: each end is one thread's.
// Ownership: descriptors that are received belong to the receiver; sent ones stay the sender's.
// Errors: Send: kUnavailable, the other end is gone or does not read; kInvalidArgument, more files than kFilesMax.
// Receive: kNotFound, nothing is there (or was, until `deadline`); kEnded, the other end is gone; kInvalidArgument,
// what came is no such message. Nothing that the other end sends can crash or hang the code here.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

enum class StateWord : uint64_t {
  kTensors = 1,  // all memory files of the registered tensors, in the order of their allocation
  kObjects = 2,  // the file with the mirrored objects of the newest steps, instead of the one before it
  kAsk = 3,      // process: what is held of the one before me?
  kNothing = 4,  // launcher: nothing; else kTensors, then kObjects where there is one, then kEnd
  kEnd = 5,
  kAdopted = 6,   // process: what I was given is my memory now
  kOnDevice = 7,  // process: of these tensors some lie on a device, which keeps them while it is well
};

struct StateMessage {
  StateWord word = StateWord::kEnd;
  uint64_t shape = 0;  // kTensors: a hash of what lies where in the files
  std::vector<UniqueFd> files;
};

class KINTSUGI_EXPORT StateChannel {
 public:
  static constexpr size_t kFilesMax = 1024;

  // Both ends.
  static Result<std::pair<StateChannel, StateChannel>> CreatePair();
  explicit StateChannel(UniqueFd end) : end_(std::move(end)) {}

  int fd() const { return end_.get(); }
  void Close() { end_.Reset(); }
  // Never blocks longer than it takes the other end's buffer to have room, 1 s at most.
  Status Send(StateWord word, uint64_t shape = 0, const std::vector<int>& files = {});
  Result<StateMessage> Receive(TimePoint deadline = {});

 private:
  Status SendPacket(StateWord word, uint64_t shape, uint64_t total, const int* files, size_t count);

  UniqueFd end_;
  std::optional<StateMessage> incoming_;  // of which not all files have come
  uint64_t missing_ = 0;
};

}  // namespace kintsugi
