// TrainerHalf: what the trainer's thread does in the library.
//
// Threads: as each part says.
// Ownership: of these parts; what is shared and the agent's thread outlive them.
// Errors: none.
#pragma once

#include "runtime/agent/steps.h"
#include "runtime/agent/thread_half.h"
#include "runtime/agent/updates.h"

namespace kintsugi {

struct TrainerHalf {
  TrainerHalf(SharedParts& shared, ThreadHalf& thread_half) : with(shared), on(thread_half) {}

  SharedParts& with;
  ThreadHalf& on;
  TrainerPosition position;
  LoopPass pass;
  Activities activities{with.page, with.activity_clock};
  DeviceCommits commits{with.self, with.gate, with.inbox};
  TensorAddresses addresses{with.registered};
  StateOffer offer{with.self, with.registered, with.page, with.log};
  Relocations relocations{with.registered, position, addresses, offer, on.thread};
  NextState next{with.registered, addresses, offer, relocations};
  FaultReports reports{with.self, with.registered, with.page, with.gate, pass,
                       commits,   addresses,       on.thread, on.orders, with.log};
  Injections injections{with.self, with.registered, with.page, with.gate, with.armed, reports};
  Refusals refusals{with.self, with.registered, with.gate, reports, with.log};
  Tasks tasks{with.self, with.registered, pass,        position, with.store, on.thread,
              on.stop,   offer,           relocations, next,     refusals};
  Parking parking{with.registered, with.page, with.gate, with.inbox, on.thread, commits, offer, reports};
  Guard guard{with.self, with.registered, with.gate,   with.inbox, with.armed, on.stop, pass,    activities,
              position,  offer,           relocations, reports,    tasks,      parking, with.log};
  StepReports told{with.page, with.gate};
  Updates updates{with.registered, with.gate, with.inbox, pass, on.thread, commits, offer, reports, refusals, told};
  Steps steps{with.self,  with.page, with.gate, with.inbox, with.armed, on.thread, on.snapshots, pass,
              activities, commits,   offer,     reports,    injections, refusals,  told,         guard};
};

}  // namespace kintsugi
