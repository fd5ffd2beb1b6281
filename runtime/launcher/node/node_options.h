// What a launcher of one of several hosts is told, and how the run ended as it knows it.
//
// Ownership: values.
// Units: in the names or std::chrono.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/run/run_result.h"

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

}  // namespace kintsugi
