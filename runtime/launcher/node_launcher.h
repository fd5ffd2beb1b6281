// NodeLauncher: starts and watches the ranks of a host that has no controller, for the controller on node 0. Its agents
// connect to it, and their frames pass through its one connection.
//
// A lost connection harms no rank: the launcher goes on looking after its processes while it tries to come back, and
// then says which of them live. Agents join anew, since what was said meanwhile is lost. Threads: one, the caller's,
// for the length of Run. Signals: SIGINT and SIGTERM ask for an orderly end of the whole run; a second one ends this
// node at once. Errors: Run: what keeps the node from starting (address, secret, refused by the controller) is
// returned; how the run ended is in the result. Without a controller for `controller_wait` the node's ranks are ended.
#pragma once

#include <memory>

#include "runtime/launcher/launcher.h"

namespace kintsugi {

struct NodeLauncherOptions {
  // As in LauncherOptions; of the policy only the world, join_timeout and grace count, the rest is node 0's.
  LauncherOptions run;
  int node_rank = 1;
  std::string controller_host;  // node 0
  uint16_t controller_port = 0;
  Duration controller_wait = std::chrono::seconds(30);
};

struct NodeResult {
  int exit_code = 0;
  std::string text;
};

class NodeLauncher {
 public:
  NodeLauncher(NodeLauncherOptions options, std::shared_ptr<LogSink> log);
  ~NodeLauncher();
  Result<NodeResult> Run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi
