// NodeBroadcast: what the leader tells all nodes: lines for their logs, that it lives and what one needs that takes
// over (pulses), where each hears the others, and which reports need not be kept any more.
//
// Threads: one, that of the leader.
// Ownership: all that it is given outlives it.
// Errors: what does not reach a node is told again when it comes back.
// Invariants: a node hears of the leader at least once in PulseEvery and a quarter of a beat; places are told once the
// run has started.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/controller/node_hub.h"
#include "runtime/launcher/leader/even_splits.h"
#include "runtime/launcher/leader/node_registry.h"
#include "runtime/launcher/run/run_account.h"

namespace kintsugi {

class NodeBroadcast {
 public:
  NodeBroadcast(NodeRegistry& registry, NodeOrders& orders, const RunAccount& account, const EvenSplits& splits,
                Duration beat, std::shared_ptr<LogSink> log);

  // Into the log here and of every node.
  void Say(LogLevel level, const std::string& line);
  void TellAll(const wire::NodeOrder& order);

  // Every few milliseconds. `folded`: what is in the sums.
  void Poll(const core::LedgerTotals& folded, TimePoint now);
  // A node has come; `moved`: it listens elsewhere than before. One that comes alone is told at once, the next ones
  // together, at the next poll: a thousand nodes that come back would else be told of each other one by one.
  void OnJoined(int node, bool moved);
  void TellNewcomer();
  void TellPlaces();
  // One that has just come: how it finds the run.
  void PulseNow(int node, TimePoint now);
  // It told its pages, which says that it lives: it is answered, unless it was told a moment ago.
  void OnPages(int node, TimePoint now);
  // What is new of the run's story goes before.
  void PulseAll(TimePoint now);

 private:
  Duration PulseEvery() const;
  void Pulse(NodeRegistry::Node& node, TimePoint now);
  void PulseThose(Duration silent_for, TimePoint now);
  void TellTotals(const core::LedgerTotals& folded);
  void TellStory(TimePoint now);
  wire::KeepIncidents NewIncidents();
  wire::KeepSpans NewSpans(TimePoint now);
  wire::KeepSpans AllSpans() const;

  NodeRegistry& registry_;
  NodeOrders& orders_;
  const RunAccount& account_;
  const EvenSplits& splits_;
  const Duration beat_;
  std::shared_ptr<LogSink> log_;
  std::map<int, bool> newcomers_;  // since others were last told: whether it listens elsewhere than before
  bool tells_at_once_ = true;      // once between two polls
  TimePoint last_pulse_, last_totals_;
  uint64_t told_totals_ = 0;  // up to which step
  uint64_t told_curve_every_ = 1;
  size_t told_curve_ = 0;
  std::vector<wire::KeptIncident> told_incidents_;
  uint64_t told_news_ = 0;
  std::vector<bool> told_lives_;  // of the result's: whether it was over
  uint64_t told_life_news_ = 0, told_steps_ = 0, told_worlds_ = 0;
  TimePoint last_steps_;
};

}  // namespace kintsugi
