// RetainedReports: reports of losses and samples that a launcher keeps for leaders to come: its own node's, and those that
// it keeps for another. They stay until the leader says that they are in its sums; a leader that took over has none of
// them, and is told the rest again.
//
// Threads: none; pure.
// Ownership: values.
// Errors: none.
// Invariants: nothing is kept that is in the sums; of one rank and step one report is kept, the newest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "runtime/core/ledger_totals.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

class RetainedReports {
 public:
  void Keep(wire::WorkerReport report);
  // What is in the leader's sums. Its curve comes in pieces; a piece that does not fit is of a leader before it, and
  // all comes soon.
  void OnTotals(const wire::KeepTotals& told);
  const core::LedgerTotals& totals() const { return totals_; }
  size_t size() const { return reports_.size(); }

  // A leader of a newer term is told all of them, a few at a time: its connection has a bound. `tell`: false where it did
  // not go out; it is told later. What comes once all are told is told when it comes.
  void BeginToRetell() { retold_ = {0, Rank()}; }
  void Retell(size_t at_most, const std::function<bool(const wire::WorkerReport&)>& tell);

 private:
  using Key = std::pair<uint64_t, Rank>;  // by step
  static constexpr Key kAll{UINT64_MAX, Rank()};

  std::map<Key, wire::WorkerReport> reports_;
  Key retold_ = kAll;          // how far the present leader has been told
  core::LedgerTotals totals_;  // of all reports up to a step, which are not kept any more
};

}  // namespace kintsugi
