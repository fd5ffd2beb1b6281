// What a node's launcher and the controller tell each other, as plain data.
//
// A launcher is its node's one connection to the controller: it starts and ends the ranks of its host, tells what their
// pages say, and passes the frames of their agents through, each agent on a channel that the launcher numbers. Instants
// of one host mean nothing on another: ages travel instead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace kintsugi::wire {

// ---- node -> controller ------------------------------------------------------------------------------------------

struct WorkerLife {
  Rank rank;
  Incarnation incarnation;
  std::vector<std::string> armed;  // injections, as "id SPEC"
};
// First on every connection. `lives`: the processes that run already, after a lost connection.
struct NodeHello {
  int node_rank = 0;
  int nodes = 1;
  int local_ranks = 1;
  std::string address;  // of the node, as others reach it
  std::vector<WorkerLife> lives;
};
struct WorkerStarting {
  WorkerLife life;
};
// Signs of life, and where each rank stands (runtime/process/shared_page.h).
struct Page {
  Rank rank;
  Incarnation incarnation;
  uint64_t beat = 0;
  uint64_t gate_word = 0;
  uint64_t progress = 0;
  Duration progress_age{};
};
struct Pages {
  std::vector<Page> pages;
};
struct WorkerReport {
  Rank rank;
  uint64_t step = 0;
  double loss = 0;
  std::vector<uint64_t> samples;
};
struct InjectionFired {
  std::string spec;
  Duration age{};
};
struct WorkerExited {
  Rank rank;
  Incarnation incarnation;
  std::string cause;
  Duration age{};
  std::optional<Duration> since_age;  // of an injector's stamp
};
struct FromAgentChannel {
  uint64_t channel = 0;
  std::string frame;
};
struct AgentChannelClosed {
  uint64_t channel = 0;
};
// Warm processes that wait on the node for a rank whose process is gone.
struct NodeSpares {
  int waiting = 0;
};
struct NodeStop {};  // the node was asked to leave: the whole run saves and ends

using NodeMessage = std::variant<NodeHello, WorkerStarting, Pages, WorkerReport, InjectionFired, WorkerExited,
                                 FromAgentChannel, AgentChannelClosed, NodeSpares, NodeStop>;

// ---- controller -> node ------------------------------------------------------------------------------------------

struct NodeWelcome {
  bool accepted = true;
  std::string text;  // why not
  std::string master_address;
  uint16_t master_port = 0;
  Duration beat{};  // how often pages are told
};
struct SpawnWorker {
  Rank rank;
  Incarnation incarnation;
};
struct KillWorker {
  Rank rank;
  Incarnation incarnation;
  std::string reason;
};
struct ToAgentChannel {
  uint64_t channel = 0;
  std::string frame;
};
struct CloseAgentChannel {
  uint64_t channel = 0;
};
struct NodeEnd {
  int exit_code = 0;
  std::string text;
};

using NodeOrder = std::variant<NodeWelcome, SpawnWorker, KillWorker, ToAgentChannel, CloseAgentChannel, NodeEnd>;

}  // namespace kintsugi::wire
