#include "runtime/inject/ledger.h"

#include <string>
#include <utility>

namespace kintsugi {

Result<InjectionId> Ledger::Add(Injection injection) {
  if (entries_.size() == kMaxInjections) {
    return Status(StatusCode::kResourceExhausted, "fault " + ToString(injection) + " refused: a run takes at most " +
                                                      std::to_string(kMaxInjections) + " injected faults");
  }
  const InjectionId id(static_cast<uint32_t>(entries_.size()));
  entries_.push_back(LedgerEntry{id, std::move(injection), InjectionState::kArmed});
  return id;
}

std::vector<LedgerEntry> Ledger::ForRank(Rank rank) const {
  std::vector<LedgerEntry> out;
  for (const LedgerEntry& entry : entries_) {
    if (entry.injection.rank == rank && entry.state != InjectionState::kFired) out.push_back(entry);
  }
  return out;
}

Status Ledger::MarkHanded(InjectionId id) {
  KINTSUGI_ASSIGN_OR_RETURN(LedgerEntry* const entry, Find(id));
  if (entry->state == InjectionState::kFired) {
    return Status(StatusCode::kFailedPrecondition,
                  "fault " + ToString(entry->injection) + " has struck already and must not be handed out again");
  }
  entry->state = InjectionState::kHanded;
  return Status::Ok();
}

std::vector<LedgerEntry> Ledger::MarkFiredMask(Rank rank, uint64_t mask) {
  std::vector<LedgerEntry> fired;
  for (LedgerEntry& entry : entries_) {
    const bool named = (mask >> entry.id.value() & 1) != 0;
    if (!named || entry.injection.rank != rank || entry.state == InjectionState::kFired) continue;
    entry.state = InjectionState::kFired;
    fired.push_back(entry);
  }
  return fired;
}

Result<LedgerEntry*> Ledger::Find(InjectionId id) {
  if (id.value() < entries_.size()) return &entries_[id.value()];
  return Status(StatusCode::kNotFound, "no injected fault has the id " + id.ToString() + "; this run has " +
                                           std::to_string(entries_.size()) + ", counted from 0");
}

}  // namespace kintsugi
