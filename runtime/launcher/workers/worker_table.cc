#include "runtime/launcher/workers/worker_table.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/train_phase.h"

namespace kintsugi {

SharedWords& Worker::words() {
  KINTSUGI_CHECK(page.has_value(), "a page is read of a process that never began");
  return page->words();
}

const SharedWords& Worker::words() const {
  KINTSUGI_CHECK(page.has_value(), "a page is read of a process that never began");
  return page->words();
}

void Worker::Give(SharedPage its_page) {
  page.emplace(std::move(its_page));
  reports.emplace(page->words().reports);
}

Worker* WorkerTable::Find(Rank rank) {
  const auto found = workers_.find(rank);
  return found == workers_.end() ? nullptr : &found->second;
}

Worker* WorkerTable::Find(const RankIncarnation& who) {
  Worker* const worker = Find(who.rank);
  return worker && worker->incarnation == who.incarnation ? worker : nullptr;
}

bool WorkerTable::running() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) { return entry.second.running(); });
}

bool WorkerTable::AllCompute() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& entry) { return entry.second.computes(); });
}

bool WorkerTable::Has(pid_t pid) const {
  return std::any_of(workers_.begin(), workers_.end(), [pid](const auto& entry) {
    const Worker& worker = entry.second;
    return (worker.child && worker.child->pid() == pid) || (worker.stacks && worker.stacks->pid() == pid);
  });
}

std::optional<Rank> WorkerTable::RankOf(pid_t pid) const {
  for (const auto& [rank, worker] : workers_)
    if (worker.child && worker.child->running() && worker.child->pid() == pid) return rank;
  return std::nullopt;
}

uint64_t WorkerTable::reports_lost() const {
  uint64_t lost = 0;
  for (const auto& [rank, worker] : workers_)
    if (worker.reports) lost += worker.reports->lost();
  return lost;
}

std::vector<WorkerTable::Life> WorkerTable::Lives() const {
  std::vector<Life> lives;
  for (const auto& [rank, worker] : workers_)
    if (worker.running() && !worker.next) lives.push_back({rank, worker.incarnation, worker.armed});
  return lives;
}

std::map<Rank, core::HeldState> WorkerTable::Held() const {
  std::map<Rank, core::HeldState> held;
  for (const auto& [rank, worker] : workers_)
    if (worker.state.held()) held.emplace(rank, *worker.state.held());
  return held;
}

void WorkerTable::Leave() {
  leaving_ = true;
  for (auto& [rank, worker] : workers_) worker.state.Forget();
}

void WorkerTable::DropEnded() {
  std::erase_if(workers_, [](const auto& entry) { return !entry.second.running() && !entry.second.stacks; });
}

}  // namespace kintsugi
