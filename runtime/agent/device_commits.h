// DeviceCommits: the device's half of a commit: what the trainer's thread waits for, and what becomes of an update that
// does not come to an end on its device.
//
// Threads: the trainer's.
// Ownership: of nothing; fences are the trainer's and live as long as the agent.
// Errors: the fence's own, and kDeadlineExceeded with the limit: the update is torn. kInterrupted: an incident has
// begun.
// Invariants: a thread that finds no fence does not find an update committed whose device has failed.
#pragma once

#include "runtime/agent/gate.h"
#include "runtime/agent/inbox.h"
#include "runtime/agent/membership.h"

namespace kintsugi {

class DeviceCommits {
 public:
  DeviceCommits(const Membership& self, Gate& gate, const Inbox& inbox) : self_(self), gate_(gate), inbox_(inbox) {}

  // Until the device has come to the fence, or an incident begins.
  Status Await(const DeviceFence& fence, const char* what) const;
  // Before the next update: the one before it must be done.
  Status AwaitNewest() {
    const DeviceFence* const fence = gate_.fence();
    if (!fence) [[likely]]
      return Status::Ok();
    return AwaitNewest(*fence);
  }
  // Before the thread parks. Not ended by an incident: what is under way needs nobody else.
  Status Settle();
  // At the top of a step: what is done is said, so that a fault in this step finds a committed update and not one under
  // way. An error waits for the next update or incident, which ask again.
  void NoteSettled();

 private:
  Status AwaitNewest(const DeviceFence& fence);

  const Membership& self_;
  Gate& gate_;
  const Inbox& inbox_;
};

}  // namespace kintsugi
