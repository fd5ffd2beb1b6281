// What launchers tell each other, as plain data: a node's launcher and the one that hosts the controller (leads), and
// launchers that elect another one.
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
#include "runtime/base/log.h"
#include "runtime/core/held_state.h"
#include "runtime/core/ledger_totals.h"
#include "runtime/core/placement.h"
#include "runtime/core/policy.h"
#include "runtime/core/time_account.h"
#include "runtime/core/witness.h"

namespace kintsugi::wire {

// ---- node -> controller ------------------------------------------------------------------------------------------

struct WorkerLife {
  Rank rank;
  Incarnation incarnation;
  std::vector<std::string> armed;  // injections, as "id SPEC"
};
// What this node's launcher still has of the process of a rank that ended. `ready`: what that process registered, as
// its agent said it (an envelope of control.proto), for a controller that never heard it; may be empty.
struct NodeHeld {
  Rank rank;
  std::optional<core::HeldState> held;
  std::string ready = {};
};
// First on every connection. `lives`: the processes that run already, after a lost connection; `held`: what is left of
// those that do not.
struct NodeHello {
  int node_rank = 0;
  int nodes = 1;
  int local_ranks = 1;
  std::string address;  // of the node, as others reach it
  std::vector<WorkerLife> lives;
  uint16_t port = 0;         // where it hears other launchers
  bool witness = false;      // it knows one: all nodes do, or none
  int controllers = 0;       // processes without ranks that may lead; their `node_rank` goes on where the nodes' ends
  uint16_t master_port = 0;  // free on its host, for the trainers' own use
  uint64_t launcher = 0;     // a random number: another launcher of the same node has another
  std::vector<NodeHeld> held = {};
  std::string host = {};     // its host's name
  std::string version = {};  // of its program, with the commit
  // Options as "--name=value": those that all nodes must have alike, and those that each may have as it wants.
  std::vector<std::string> alike = {}, own = {};
  bool newcomer = false;  // it was started anew within a run (runtime/core/newcomer.h)
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
  core::SampleSum samples;
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
  bool left = false;                  // by itself, with `code`: nothing ended it
  int code = 0;
  std::vector<std::string> not_struck = {};  // faults that were ordered for the rank and have not struck so far
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
struct NodeInject {  // a fault was armed for one of the node's ranks
  Rank rank;
  std::string injection;  // "id SPEC"
};
// Between launchers: `node` wants to lead under the term of this number. A hello asks who leads.
struct VoteRequest {
  int node = 0;
  uint64_t term = 0;
  core::Placement placement = {};  // as far as the sender knows, here and in the vote
};
// `live`, `ended`: of the voter's ranks, those whose processes run and those whose processes have ended.
struct Vote {
  int node = 0;
  uint64_t term = 0;
  bool granted = false;
  std::vector<Rank> live, ended;
  core::Placement placement = {};
  bool newcomer = false;  // as in its hello
};

// The leader's order of this number about even splits was taken: the node goes by it.
struct TieRuleKept {
  uint64_t number = 0;
};

// A request that came through this node's control socket and is the leader's to answer; the answer to what it asked
// here.
struct NodeAsks {
  uint64_t id = 0;  // the asker's own
  std::string request;
};
struct NodeAnswers {
  uint64_t id = 0;
  std::string answer;
};

using NodeMessage = std::variant<NodeHello, WorkerStarting, Pages, WorkerReport, InjectionFired, WorkerExited,
                                 FromAgentChannel, AgentChannelClosed, NodeStop, NodeInject, NodeSpares, NodeHeld,
                                 VoteRequest, Vote, TieRuleKept, NodeAsks, NodeAnswers>;

// ---- controller -> node ------------------------------------------------------------------------------------------

struct NodeWelcome {
  bool accepted = true;
  std::string text;  // why not
  std::string master_address;
  uint16_t master_port = 0;
  Duration beat{};     // how often pages are told
  std::string policy;  // of the run, as words (runtime/journal/text.h): what a launcher needs that takes over
  std::string run;     // names the run to a witness, beyond its job
  core::Placement placement = {};  // where the ranks live
  std::string page = {};           // the leader's, as others reach it; empty: it has none that they reach
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
  bool asked = false;  // somebody wanted it to end
  // All loops are over: how the run ends is told once the processes have left by themselves.
  bool awaits_ends = false;
};

// Of the run so far, as its leader counts: one that takes over goes on from there.
struct RunSoFar {
  uint64_t incidents = 0;
  bool pause_asked = false;
  TimeAccount time;
  uint64_t saves_made = 0, saves_failed = 0;
  uint64_t inexact = 0;    // how often a rank said that it is not as an undisturbed run would have it
  int ranks_wanted = 0;    // by somebody's word; 0: nobody said
  std::vector<Rank> crew;  // who took part when all were last in their loops; nobody named: all
};
// Every beat: the controller lives. And what one that takes over cannot learn from the ranks.
struct NodePulse {
  bool began = false;  // ranks have been in their loops
  std::vector<core::Checkpoint> checkpoints;
  Generation generation;  // in which all ranks were last in their loops
  core::TieOrder tie;     // what decides an even split; number 0: no witness is known
  RunSoFar so_far;
  bool started = false;  // processes of ranks were started
};
// A report of another node's, kept for a leader that takes over when that node is lost.
struct KeepReport {
  WorkerReport report;
};
// What the leader has folded of all reports, for one that takes over: the reports up to totals.step need not be kept.
struct KeepTotals {
  core::LedgerTotals totals;  // its curve from that place on; what was told before stays
  uint64_t curve_from = 0;    // 0: all of it
};
// An incident that is over, as words (runtime/journal/text.h) whose instants count from the run's begin: the leaders'
// clocks differ. What single ranks did in it is left out.
struct KeptIncident {
  uint64_t id = 0;
  std::string record;
  std::string injection;  // that it came of, as --inject takes it; empty: none that is known
};
// The run's incidents, for the report of a leader that takes over: the newest ones.
struct KeepIncidents {
  static constexpr size_t kMax = 256;
  std::vector<KeptIncident> incidents;
  bool all = false;  // what was told before is void
};
// When a process lived and when a rank was at a step, since the run's begin, for the pictures of the same report.
struct KeptLife {
  Rank rank;
  Incarnation incarnation;
  Duration begin{}, end{};
  bool over = false;  // else `end` says nothing
  std::string cause;
};
struct KeptStep {
  Rank rank;
  Step step;
  Duration begin{}, end{};
};
// From a step on other ranks took part, so many in all.
struct KeptWorld {
  Duration at{};  // all were in their loops again
  Step step;
  int ranks = 0;
  std::vector<Rank> left, came;
  uint64_t incident = 0;  // that changed it; 0: none that is known
};
struct KeepSpans {
  static constexpr size_t kLivesMax = 4096, kStepsMax = 4096, kWorldsMax = 256;  // the newest
  std::vector<KeptLife> lives;
  std::vector<KeptStep> steps;
  std::vector<KeptWorld> worlds;
  bool all = false;  // what was told before is void
};
// Where a node's launcher hears others.
struct NodePlace {
  int node = 0;
  std::string address;
  uint16_t port = 0;
};
// The same, changed: a node that has no ranks any more is a spare from now on.
struct NodeBlocks {
  core::Placement placement;
};
struct NodePlaces {  // of these nodes; what is known of others stays
  std::vector<NodePlace> places;
};
// The same in the other direction: what only a node can do, and what it asked for.
struct AskNode {
  uint64_t id = 0;
  std::string request;
};
struct AnswerNode {
  uint64_t id = 0;
  std::string answer;
};
// A line for the log of every node: what happened to the run, under any leader.
struct NodeNews {
  LogLevel level = LogLevel::kInfo;
  std::string line;
};
// Between launchers: who hosts the controller under the envelope's term, and where it listens.
struct Leads {
  NodePlace controller;
  bool part = false;          // elected by no majority: it saves what is there, and leaves
  core::Placement placement;  // as the sender knows it
};

using NodeOrder = std::variant<NodeWelcome, SpawnWorker, KillWorker, ToAgentChannel, CloseAgentChannel, NodeEnd,
                               NodePulse, KeepReport, KeepTotals, NodePlaces, Leads, AskNode, AnswerNode, NodeNews,
                               NodeBlocks, KeepIncidents, KeepSpans>;

}  // namespace kintsugi::wire
