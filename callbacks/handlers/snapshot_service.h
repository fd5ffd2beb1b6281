// SnapshotService: in-memory snapshots, as the agent asks for them. Implemented in replica and installed next to its
// default handlers, so that runtime never includes replica.
//
// A snapshot of step S is a copy of everything a rank holds of S, taken while step S + 1 computes: between the commit
// of S and the update of S + 1 nobody writes that state. The rank keeps the copy, and its partner keeps another.
// Threads: Prepare and Abort come on the agent's thread, Take on the trainer's; none of them waits for a copy. Reports
// come on a thread of the service.
// Errors: come as reports; each Prepare of a generation is answered by exactly one report on the rank's own snapshot
// unless it is aborted, and each snapshot that comes in from another rank by one on that.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "callbacks/handlers/store.h"
#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/status.h"

namespace kintsugi {

// What a rank is to copy next.
struct SnapshotOrder {
  Step step;             // at the boundary after it
  Step keep;             // the newest snapshot that counts: it is not overwritten; 0: none
  Rank partner{-1};      // who keeps this rank's second copy; -1: nobody
  std::vector<Rank> of;  // whose second copies this rank keeps, ascending
  bool operator==(const SnapshotOrder&) const = default;
};

// What became of one copy.
struct SnapshotReport {
  Rank owner;  // whose state: the reporter's own, or that of a rank it keeps a copy for
  Step step;
  // kOk: the copy is whole. kCancelled: the next gate came first. kUnavailable: the order came too late.
  // kFailedPrecondition: this rank can make none, ever. Any other: it failed, and may be tried again.
  StatusCode code = StatusCode::kOk;
  std::string text;
  std::map<int, uint64_t> digests;  // per layout; as StateService::Digests gives at this step
  Duration cost{};                  // CPU time that the copy took here
  Step begun;                       // the newest step that the reporter has begun; filled in by the agent
  bool counts = false;              // told to a controller that takes over: to the one before it the snapshot counted
  bool operator==(const SnapshotReport&) const = default;
};

class KINTSUGI_EXPORT SnapshotService {
 public:
  // What a generation gives; the service keeps it until the next Prepare that names another one.
  struct Session {
    Generation generation;
    Rank self;
    std::shared_ptr<Store> store;  // rendezvous of the generation
    Duration limit{};              // for opening a link, and for moving a snapshot
    // Whether the registered tensors still are those of `step`: no lock, no update since. Any thread.
    std::function<bool(Step step)> unchanged;
    std::function<void(SnapshotReport report)> report;
    // Whether the device has finished the update that was committed last; an error: it never will. Null: there is none.
    std::function<Result<bool>()> settled;
  };

  virtual ~SnapshotService() = default;
  // A snapshot of order.step is due: opens what it needs and gets ready to receive.
  virtual void Prepare(const Session& session, const SnapshotOrder& order) = 0;
  // The state is that of `step` now, which Prepare named.
  virtual void Take(Step step) = 0;
  // Gives up whatever is under way; copies that are whole stay.
  virtual void Abort() = 0;
  // The same for good: when it returns nothing of a session is used any more. On the thread that ends the agent.
  virtual void Stop() = 0;
};

}  // namespace kintsugi
