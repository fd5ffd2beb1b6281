// NodeState: the ground that all parts of a node's launcher share: who this one is among the launchers, what leaders
// told of the run, how this node stands. As data: what happens to it is in the part that makes it happen.
//
// Threads: one, that of the launcher.
// Ownership: values, but for the log.
// Errors: none.
// Invariants: a node ends once, and what ends it first is its result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/core/election.h"
#include "runtime/core/fresh_lives.h"
#include "runtime/core/newcomer.h"
#include "runtime/launcher/leader/node_registry.h"
#include "runtime/launcher/node/node_options.h"
#include "runtime/launcher/run/generation_log.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

// Who this launcher is: nodes come first, then controllers without ranks, then spare nodes. Pure.
class NodeSelf {
 public:
  explicit NodeSelf(const NodeLauncherOptions& options);

  const NodeShape& shape() const { return shape_; }
  int local_ranks() const { return shape_.local_ranks; }
  bool is_node() const { return controller_ < 0; }
  // Its index among the launchers.
  int index() const { return index_; }
  std::string name() const { return NameOf(index_); }
  std::string NameOf(int index) const;
  // The first leader.
  bool founds() const { return index_ == founder_; }
  // Controllers stand for election before nodes do: a node that leads takes its host's processors from its ranks.
  int turn() const { return turn_; }

 private:
  const NodeShape shape_;
  const int controller_;
  const int index_, founder_, turn_;
};

struct NodeState {
  NodeState(NodeLauncherOptions given, std::shared_ptr<GenerationLog> to);

  const LauncherOptions& run() const { return options.run; }
  int index() const { return self.index(); }

  const NodeLauncherOptions options;
  const NodeSelf self;
  const std::shared_ptr<GenerationLog> log;
  uint64_t launcher_id = 0;  // tells this launcher from another one with the same node rank
  core::ElectionCore election;
  core::Newcomer newcomer;
  core::FreshLives fresh;

  // What a leader must know that takes over, as the one before it told, beside the sums of reports.
  std::string policy, master_address;
  uint16_t master_port = 0;
  std::string run_id;  // names the run to the witness, and in its save directory
  std::string leader_page;
  wire::NodePulse pulse;
  TimePoint pulse_at;  // when it came

  bool set_up = false;  // welcomed once: the pool knows what a welcome says
  std::optional<TimePoint> stop_asked;
  bool loops_over = false;  // the leader said so: it hears how the processes here leave, and tells the end
  std::optional<NodeResult> ended;
  Status failed;
};

// What parts ask of the end (node_ending.h).
class NodeEnds {
 public:
  virtual ~NodeEnds() = default;
  virtual void Fail(Status why) = 0;
  virtual void EndNow(int exit_code, const std::string& why) = 0;
  // A process here has left: perhaps the last.
  virtual void OnLeft() = 0;
  // The leader that was here is done.
  virtual void OnLeaderDone() = 0;
  // This node has ended, and the connection to the leader is closed, or cannot be made any more.
  virtual void OnDisconnected() = 0;
  virtual void OnUnreachable() = 0;
};

}  // namespace kintsugi
