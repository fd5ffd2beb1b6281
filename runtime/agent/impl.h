// Agent::Impl: the parts of an agent, each made of those before it: what the threads share, what the agent's thread does,
// what the trainer's does. Agent's methods forward to them; how the rank joins and how the agent ends is here.
//
// Threads: the trainer's makes and ends it; each part says whose it is.
// Ownership: of all parts.
// Errors: Start: as Agent::Join says.
// Invariants: when the destructor stops the agent's thread all parts are there still; none of it touches a part after.
#pragma once

#include <memory>

#include "runtime/agent/pulse.h"
#include "runtime/agent/steps.h"
#include "runtime/agent/updates.h"

namespace kintsugi {

class Agent::Impl {
 public:
  Impl(const AgentOptions& options, std::shared_ptr<LogSink> log);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Connects and joins; a spare waits for its place first.
  Status Start();

  const std::shared_ptr<LogSink> log;
  Membership self;

  // What the threads share.
  RankPage page;
  Gate gate;
  Inbox inbox{gate, page};
  ArmedFaults armed;
  Registration registered{self};
  StoreClient store;

  // The agent's thread.
  AgentThread thread;
  ControllerLink link{self, page, inbox, store, thread, log};
  Pulse pulse{page, gate, inbox, thread, link};
  StopWatch stop{self, registered, page, inbox, thread, log};
  SnapshotPoints snapshots{self, registered, page, gate, store, thread};
  Orders orders{self, page, gate, inbox, armed, store, thread, link, stop, snapshots, log};

  // The trainer's.
  TrainerPlace place;
  LoopPass pass;
  Activities activities{page};
  DeviceCommits commits{self, gate, inbox};
  TensorPlaces places{registered};
  StateOffer offer{self, registered, page, log};
  Relocations relocations{registered, place, places, offer, thread};
  FaultReports reports{self, registered, page, gate, pass, commits, places, thread, orders, log};
  Injections injections{self, registered, page, gate, armed, reports};
  Tasks tasks{self, registered, pass, place, store, thread, stop, offer, relocations};
  Parking parking{registered, page, gate, inbox, thread, commits, reports};
  Guard guard{self,  registered, gate,        inbox,   armed, stop,    pass, activities,
              place, offer,      relocations, reports, tasks, parking, log};
  Updates updates{registered, gate, inbox, pass, thread, commits, offer, reports};
  Steps steps{self, page, gate, inbox, armed, thread, snapshots, pass, activities, commits, reports, injections, guard};

 private:
  Status TakePlace(const net::Secret& secret);
};

}  // namespace kintsugi
