// ControlHandler: the leader's answers to what comes through a control socket, its own or that of another node: one JSON
// object in, one out. What needs the controller alone is the OperatorRequests's.
//
// Threads: one, that of the leader.
// Ownership: all that it is given outlives it.
// Errors: a refusal is an answer.
// Invariants: each request is answered once.
#pragma once

#include <string>

#include "runtime/controller/controller.h"
#include "runtime/launcher/leader/ending.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/leader/operator_requests.h"
#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/run/run_account.h"
#include "runtime/net/control_socket.h"

namespace kintsugi {

class ControlHandler {
 public:
  ControlHandler(const LauncherOptions& run, Controller& controller, const RunAccount& account,
                 OperatorRequests& operators, Hosts& hosts, Ending& ending)
      : run_(run), controller_(controller), account_(account), operators_(operators), hosts_(hosts), ending_(ending) {}

  void OnRequest(const std::string& request, net::ControlSocket::Respond respond);
  // What can be seen of the run now.
  RunStatus Look() const;

 private:
  void Drain(const ControlWords& words, net::ControlSocket::Respond respond);
  void Inject(const std::string& spec, const std::string& request, net::ControlSocket::Respond respond);

  const LauncherOptions& run_;
  Controller& controller_;
  const RunAccount& account_;
  OperatorRequests& operators_;
  Hosts& hosts_;
  Ending& ending_;
};

}  // namespace kintsugi
