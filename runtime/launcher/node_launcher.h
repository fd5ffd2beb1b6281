// NodeLauncher: the launcher of one of several hosts. It starts and watches this host's ranks for whichever launcher
// hosts the controller (leads), which may be itself; when that one is lost, the launchers that are left elect another.
//
// Node 0 begins: it leads once every node has asked it who does. With `controllers`, which are this same class in
// processes without ranks, the first of these begins, and they come first in every election; they count for nothing in
// it, since it is the ranks of the nodes that have a vote. A lost connection harms no rank: the launcher goes on
// looking after its processes while it tries to come back, and says which of them live. Agents join anew, since what
// was said meanwhile is lost. Without a leader and without a majority to elect one for `controller_wait`, it leads what
// is here: the ranks save what they have, `latest` stays, and the run ends with 75.
// Threads: one, the caller's, for the length of Run. Signals: SIGINT and SIGTERM ask for an orderly end of the whole
// run; a second one ends this node at once.
// Errors: Run: what keeps the node from starting (address, secret, refused by the others) is returned; how the run
// ended is in the result.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "runtime/launcher/launcher.h"

namespace kintsugi {

struct NodeLauncherOptions {
  // As in LauncherOptions. The policy is node 0's: the others are told it.
  LauncherOptions run;
  int node_rank = 0;
  std::string rendezvous_host;  // where node 0 hears the others
  uint16_t rendezvous_port = 0;
  // Processes that hold the controller and no ranks: where they listen; empty: the nodes lead. Their places among the
  // launchers go on where the nodes' end.
  std::vector<net::HttpEndpoint> controllers;
  int controller = -1;  // which of them this process is; -1: a node
  Duration controller_wait = std::chrono::seconds(60);
};

struct NodeResult {
  int exit_code = 0;
  std::string text;
  bool asked = false;            // by a signal or a request on any node: somebody wanted it to end
  std::optional<RunResult> run;  // of the node that led at the end
};

class NodeLauncher {
 public:
  NodeLauncher(NodeLauncherOptions options, std::shared_ptr<LogSink> log);
  ~NodeLauncher();
  // While this node leads; called on Run's thread, at most ten times a second.
  void OnProgress(std::function<void(const RunProgress&)> listener);
  Result<NodeResult> Run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi
