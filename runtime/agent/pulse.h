// Pulse: says every 50 ms that this process lives: in the page, and to the controller where no launcher reads the page.
//
// Threads: the agent's.
// Ownership: its timer.
// Errors: none.
#pragma once

#include <boost/asio/steady_timer.hpp>

#include "runtime/agent/activity_clock.h"
#include "runtime/agent/controller_connection.h"
#include "runtime/agent/gate.h"

namespace kintsugi {

class Pulse {
 public:
  Pulse(RankPage& page, const ActivityClock& activities, const Gate& gate, const Inbox& inbox, AgentThread& thread,
        ControllerConnection& connection)
      : page_(page),
        activities_(activities),
        gate_(gate),
        inbox_(inbox),
        thread_(thread),
        connection_(connection),
        timer_(thread.io()) {}

  // Until the run ends.
  void Beat();
  void Stop() { timer_.cancel(); }

 private:
  // The trainer stands in an activity for longer than it has set itself: told once.
  void CheckActivity();

  RankPage& page_;
  const ActivityClock& activities_;
  const Gate& gate_;
  const Inbox& inbox_;
  AgentThread& thread_;
  ControllerConnection& connection_;
  boost::asio::steady_timer timer_;
  TimePoint told_;  // the deadline that was told of last
};

}  // namespace kintsugi
