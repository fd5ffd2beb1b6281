// Pulse: says every 50 ms that this process lives: in the page, and to the controller where no launcher reads the page.
//
// Threads: the agent's.
// Ownership: its timer.
// Errors: none.
#pragma once

#include <boost/asio/steady_timer.hpp>

#include "runtime/agent/controller_connection.h"
#include "runtime/agent/gate.h"

namespace kintsugi {

class Pulse {
 public:
  Pulse(RankPage& page, const Gate& gate, const Inbox& inbox, AgentThread& thread, ControllerConnection& connection)
      : page_(page), gate_(gate), inbox_(inbox), thread_(thread), connection_(connection), timer_(thread.io()) {}

  // Until the run ends.
  void Beat();
  void Stop() { timer_.cancel(); }

 private:
  RankPage& page_;
  const Gate& gate_;
  const Inbox& inbox_;
  AgentThread& thread_;
  ControllerConnection& connection_;
  boost::asio::steady_timer timer_;
};

}  // namespace kintsugi
