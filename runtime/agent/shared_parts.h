// SharedParts: what the agent's thread and the trainer's both touch.
//
// Threads: as each part says.
// Ownership: of these parts; it outlives both halves.
// Errors: none.
#pragma once

#include <memory>
#include <utility>

#include "runtime/agent/activity_clock.h"
#include "runtime/agent/armed_faults.h"
#include "runtime/agent/gate.h"
#include "runtime/agent/inbox.h"
#include "runtime/agent/membership.h"
#include "runtime/agent/rank_page.h"
#include "runtime/agent/registration.h"
#include "runtime/agent/store_client.h"
#include "runtime/base/log.h"

namespace kintsugi {

struct SharedParts {
  // `send` carries the store's questions to the controller.
  SharedParts(const AgentOptions& options, std::shared_ptr<LogSink> sink, StoreClient::Send send)
      : log(std::move(sink)), self{options, {}, {}}, store(std::move(send)) {}

  const std::shared_ptr<LogSink> log;
  Membership self;
  RankPage page;
  ActivityClock activity_clock;
  Gate gate;
  Inbox inbox{gate, page};
  ArmedFaults armed;
  Registration registered{self};
  StoreClient store;
};

}  // namespace kintsugi
