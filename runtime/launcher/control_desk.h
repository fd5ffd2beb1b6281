// ControlDesk: the leader's answers to what comes through a control socket, its own or that of another node: one JSON
// object in, one out. What needs the controller alone is the OperatorDesk's.
//
// Threads: one, that of the leader.
// Ownership: all that it is given outlives it.
// Errors: a refusal is an answer.
// Invariants: each request is answered once.
#pragma once

#include <string>

#include "runtime/controller/controller.h"
#include "runtime/launcher/ending.h"
#include "runtime/launcher/hosts.h"
#include "runtime/launcher/launcher.h"
#include "runtime/launcher/operator_desk.h"
#include "runtime/launcher/run_account.h"
#include "runtime/net/control_socket.h"

namespace kintsugi {

class ControlDesk {
 public:
  ControlDesk(const LauncherOptions& run, Controller& controller, const RunAccount& account, OperatorDesk& desk,
              Hosts& hosts, Ending& ending)
      : run_(run), controller_(controller), account_(account), desk_(desk), hosts_(hosts), ending_(ending) {}

  void OnRequest(const std::string& request, net::ControlSocket::Respond respond);
  // What can be seen of the run now.
  RunSight Look() const;

 private:
  void Drain(const ControlWords& words, net::ControlSocket::Respond respond);
  void Inject(const std::string& spec, const std::string& request, net::ControlSocket::Respond respond);

  const LauncherOptions& run_;
  Controller& controller_;
  const RunAccount& account_;
  OperatorDesk& desk_;
  Hosts& hosts_;
  Ending& ending_;
};

}  // namespace kintsugi
