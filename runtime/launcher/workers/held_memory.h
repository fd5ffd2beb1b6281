// HeldMemory: the memory files of one rank's state, kept beyond the end of its process for the one that replaces it.
//
// While a rank's process lives its files are known here; when it ends, core::HeldAfter says whether they are any
// step's. They are kept until the replacement is in its loop: until then a host has the rank's state in memory twice.
// Threads: one.
// Ownership: the descriptors; the memory is freed when nobody has it any more.
// Errors: a process that offers nothing, or nonsense, leaves nothing behind: its state is streamed.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/core/held_state.h"
#include "runtime/process/exit_cause.h"
#include "runtime/process/shared_page.h"
#include "runtime/process/state_channel.h"

namespace kintsugi {

class HeldMemory {
 public:
  // A process begins, and this is its channel.
  void Attach(StateChannel channel);
  // Hears what it has to say.
  void Poll(const SharedWords& words);
  // It has ended. What is held from now on.
  std::optional<core::HeldState> OnExit(Incarnation incarnation, const SharedWords& words, const ExitCause& cause);
  const std::optional<core::HeldState>& held() const { return held_; }
  // Nobody will ask any more.
  void Forget();
  // The device of the rank has failed: what lies there is no state any more.
  void DistrustDevice();

 private:
  struct Files {
    uint64_t shape = 0;
    std::vector<std::shared_ptr<UniqueFd>> tensors;
    std::shared_ptr<UniqueFd> objects;
    bool on_device = false;
  };
  void On(StateMessage message);
  void Give();
  void Read();

  std::optional<StateChannel> channel_;
  std::optional<Files> own_;   // of the process that lives
  std::optional<Files> left_;  // of the one that held_ names
  std::optional<core::HeldState> held_;
  bool given_ = false;  // the process that lives has the files of left_: what it writes may go there
};

}  // namespace kintsugi
