#include "runtime/launcher/workers/worker_pages.h"

#include "runtime/base/check.h"

namespace kintsugi {

void WorkerPages::Read(Rank rank, Worker& worker) {
  if (!worker.page) return;
  KINTSUGI_CHECK(worker.reports.has_value(), "nobody reads the reports of rank " + rank.ToString());
  SharedWords& words = worker.words();
  // The page of a process that has ended says nothing of the one that is to adopt what it left.
  if (worker.running()) worker.state.Poll(words);
  worker.reports->Read([&](const StepReport& report) { events_.OnReport(rank, report); });
  for (const LedgerEntry& entry : ledger_.MarkFiredMask(rank, words.fired_injections.load()))
    events_.OnFired(entry.injection, TimePoint(Duration(static_cast<int64_t>(words.fault_ns.load()))));
  events_.OnPage(rank, worker.incarnation,
                 {words.beat.load(), words.gate_word.load(), words.progress.load(),
                  TimePoint(Duration(static_cast<int64_t>(words.progress_ns.load())))});
}

void WorkerPages::ReadRunning() {
  for (auto& [rank, worker] : table_)
    if (worker.running()) Read(rank, worker);
}

std::vector<std::string> WorkerPages::NotStruck(Rank rank) const {
  std::vector<std::string> specs;
  for (const LedgerEntry& entry : ledger_.ForRank(rank)) specs.push_back(ToString(entry.injection));
  return specs;
}

void WorkerPages::TellReportsAgain() {
  for (auto& [rank, worker] : table_)
    if (worker.page) worker.reports.emplace(worker.words().reports);
  for (auto& [rank, worker] : table_) Read(rank, worker);
}

}  // namespace kintsugi
