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

#include "runtime/launcher/node/node_options.h"
#include "runtime/launcher/run/progress_meter.h"

namespace kintsugi {

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
