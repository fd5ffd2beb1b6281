// What one virtual run is: its shape, its policy and its faults, all drawn from one seed and a profile.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/base/result.h"
#include "runtime/core/offers.h"
#include "runtime/core/phase.h"
#include "runtime/core/policy.h"
#include "runtime/sim/cut.h"

namespace kintsugi::sim {

enum class FaultType : uint8_t {
  // A process.
  kKill,
  kExit,
  kFreeze,
  kPause,
  kNodeLost,
  kSlowRank,
  // Its trainer and its memory.
  kThrow,
  kThrowInUpdate,
  kHang,
  kUceLow,
  kUceHigh,
  kCommError,
  kHandlerFails,
  kHandlerHangs,
  kHandlerNonsense,
  kBitFlip,
  kSilentFlip,
  kSourceLost,
  // Its replacement.
  kBadReplacement,
  kSlowReplacement,
  kFastReplacement,
  // Its connection.
  kShortGap,
  kLongGap,
  kHalfOpenHere,
  kHalfOpenThere,
  kCutUp,
  kCutDown,
  kPartition,
  kSlowLink,
  kBadFrame,
  // The operator.
  kSave,
  kStop,
  // The controller.
  kControllerKilled,
  kControllerFrozen,
  // Launchers, and the roads between their nodes.
  kStandbyKilled,
  kNodesCut,
  kNodesCutOneWay,
  kNodesCutInHalves,
  // A bit of committed state, between steps.
  kStateFlip,
  // All that hold one shard.
  kGroupLost,
  // A spare node, whether it has ranks by then or not.
  kSpareNodeLost,
  // The operator wants a new process for a rank.
  kReplace,
  // Ranks of two nodes cannot connect to each other, and both reach the controller.
  kRoadClosed,
  // The operator wants a node's ranks elsewhere.
  kDrain,
  // ... another number of ranks.
  kScale,
};
inline constexpr int kFaultTypes = 45;
std::string_view FaultTypeName(FaultType type);

// Where a trainer's thread is.
enum class TrainerAt : uint8_t {
  kBoot,
  kParked,
  kForward,
  kGradients,
  kGate,
  kVerdict,
  kUpdate,
  kParamSync,
  kSavePoint,
  kHandler,
};
std::string_view TrainerAtName(TrainerAt at);

struct PlannedFault {
  FaultType type = FaultType::kKill;
  int rank = 0;
  int count = 1;         // of bad replacements, failing handlers, flipped repairs; of ranks that are asked for
  bool lasting = false;  // connection faults and pauses: longer than anyone waits
  // When: exactly one of the three.
  std::optional<Duration> at;
  std::optional<Phase> in_phase;        // when the controller enters the phase, plus `delay`
  int nth = 1;                          // ... for the nth time
  std::optional<TrainerAt> in_trainer;  // when the rank's trainer gets there in `step`
  uint64_t step = 0;
  Duration delay{};

  std::string ToString() const;
};

// A rank refuses a step, before its gate.
struct PlannedRefusal {
  enum class Of : uint8_t {
    kData,     // each time it has computed it
    kMachine,  // once, when it has computed otherwise than it does the next time
    kNothing,  // once
  };
  Of of = Of::kData;
  uint64_t step = 0;
  int rank = 0;
  std::string ToString() const;
};

enum class GateKind : uint8_t { kTrainer, kControlPlane, kOff };

struct Plan {
  uint64_t seed = 0;
  Policy policy;
  Claims claims;
  std::string layout_name;
  int nodes = 1;
  uint64_t steps = 8;
  Duration step_time{};  // of a healthy step, about
  Duration beat{};
  Duration tick{};
  GateKind gate = GateKind::kTrainer;
  int spares = 0;           // warm processes that wait on each node
  bool elections = false;   // a launcher on each node, and who leads is for them to find out
  int spare_nodes = 0;      // with elections: nodes that have no ranks at first
  Duration spare_after{};   // that a node is away until one of them takes its ranks over
  Duration shrink_after{};  // ... until the run goes on without it, where it can; none: never
  bool watched = true;      // a launcher reads the ranks' pages; else they beat over their connections
  std::vector<PlannedFault> faults;
  std::vector<PlannedRefusal> refusals;   // of a step at most one
  uint64_t back = 0;                      // so many steps before one that is left out go with it
  int most = 0;                           // steps that may be left out
  std::vector<std::vector<Rank>> slices;  // that the trainer offers; none: no other world
  std::vector<int> worlds;
  std::map<int, CutRule> cut_rules;  // any layout is offered: how a world of each size is cut
  PiecePlanner planner = nullptr;    // with it: the agents' own. No part of what is drawn

  core::Offer OfferOf(Rank rank) const;
  int NodeOf(int rank) const { return rank * nodes / policy.world_size; }
  std::string ToString() const;
};

// In a larger world nobody meets everybody: ranks are cut into groups and connect along a tree, as large jobs do.
inline constexpr int kSmallWorld = 256;

// A family of runs.
struct Profile {
  std::string name;
  std::string description;
  int nodes = 1;
  uint64_t steps_min = 4, steps_max = 9;
  Duration step_time = std::chrono::milliseconds(5);
  Duration beat = std::chrono::milliseconds(50);
  uint64_t faults_min = 1, faults_max = 3;
  double network = 0.25;      // share of faults that strike a connection
  double controller = 0;      // ... and of those that strike the controller
  int ranks = 0;              // 0: the layout's choice
  bool adopts = false;        // launchers hold the memory of processes that are gone
  int spares_max = 0;         // on each node; above 0 there is at least one
  bool elections = false;     // of launchers, on 2 to 4 nodes
  int spare_nodes_max = 0;    // with elections: beside 3 to 4 nodes; above 0 there is at least one
  bool comparison = false;    // of replicas every few steps; the first fault flips a bit
  int node_ranks = 0;         // ranks of a node, where it is these that are given and not the nodes
  bool incident = false;      // the one fault opens an incident that can be repaired
  double groups = 0;          // share of faults that take all holders of a shard; above 0 snapshots are made
  double pairs = 0;           // the same, without snapshots
  bool orders = false;        // the first one is an order to replace a rank, others strike its partners
  bool leaderless = false;    // with elections: the leader is lost first, and the run is asked to stop about then
  bool newcomers = false;     // with elections: roads change while a launcher is killed and started anew
  bool drains = false;        // with spare nodes: the first one is an order to drain a node, others may be orders, too
  bool elastic = false;       // the trainer offers smaller worlds; processes are lost first, and not replaced
  bool hosts_return = false;  // with elections and elastic: nodes are lost first, most of which come back
  bool relayout = false;      // with elastic: in any layout, so that pieces move; orders first
  bool refusals = false;      // steps are refused, for their data, for a machine or for nothing
  bool roads = false;         // with elections: the first one closes roads between nodes; perhaps a spare node waits
};
const std::vector<Profile>& Profiles();
// kInvalidArgument names the profiles there are.
Result<Profile> FindProfile(const std::string& name);
// What can be asked for with --ranks. kInvalidArgument names the bound.
Status CheckRanks(int ranks);

// The same seed, profile and ranks give the same plan. `ranks` 0: the profile's.
Plan DrawPlan(uint64_t seed, const Profile& profile, int ranks);

// Milliseconds with three digits, by integers alone.
std::string Milliseconds(Duration d);

}  // namespace kintsugi::sim
