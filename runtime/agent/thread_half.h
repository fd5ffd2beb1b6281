// ThreadHalf: what the agent's own thread does.
//
// Threads: as each part says.
// Ownership: of these parts; what is shared outlives them.
// Errors: none.
// Invariants: once Stop has returned nothing runs here.
#pragma once

#include "runtime/agent/agent_thread.h"
#include "runtime/agent/controller_connection.h"
#include "runtime/agent/lookout.h"
#include "runtime/agent/orders.h"
#include "runtime/agent/pulse.h"
#include "runtime/agent/shared_parts.h"
#include "runtime/agent/snapshot_points.h"
#include "runtime/agent/stop_watch.h"

namespace kintsugi {

struct ThreadHalf {
  explicit ThreadHalf(SharedParts& shared) : with(shared) {}
  void Stop() {
    thread.Stop([this] {
      (void)with.inbox.BeginEnd();
      pulse.Stop();
      lookout.Stop();
      stop.EndTimer();
      connection.Stop();
    });
  }

  SharedParts& with;
  AgentThread thread;
  ControllerConnection connection{with.self, with.page, with.inbox, with.store, thread, with.log};
  Pulse pulse{with.page, with.activity_clock, with.gate, with.inbox, thread, connection};
  StopWatch stop{with.self, with.registered, with.page, with.activity_clock, with.inbox, thread, with.log};
  SnapshotPoints snapshots{with.self, with.registered, with.page, with.gate, with.store, thread};
  Lookout lookout{with.self, with.page, with.gate, with.inbox, thread};
  Orders orders{with.self, with.page,  with.gate, with.inbox, with.armed, with.store,
                thread,    connection, stop,      snapshots,  lookout,    with.log};
};

}  // namespace kintsugi
