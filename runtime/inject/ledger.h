// Ledger: which injections a run has been given and which have struck, so that each strikes once per run.
//
// Why the launcher keeps it: the rank that an injection kills comes back without memory and repeats the same step; only
// someone who outlives it can tell the replacement that its fault is over.
// Lifecycle: armed -> handed (a life of the rank was told of it) -> fired. Whatever has not fired is handed again to
// the next life.
// Threads: none of its own; one owner.
// Errors: kResourceExhausted when the run's mask is full, kNotFound for a foreign id.
// Invariants: ids count from 0 in order of arrival and are bit numbers of the shared page's mask of fired injections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/inject/injection.h"

namespace kintsugi {

using InjectionId = StrongId<struct InjectionIdTag, uint32_t>;

enum class InjectionState { kArmed, kHanded, kFired };

struct LedgerEntry {
  InjectionId id;
  Injection injection;
  InjectionState state = InjectionState::kArmed;
};

class KINTSUGI_EXPORT Ledger {
 public:
  // The fired mask is one 64-bit word.
  static constexpr size_t kMaxInjections = 64;

  Result<InjectionId> Add(Injection injection);

  // What a life of `rank` must be told: all of its injections that have not fired, in order of arrival.
  std::vector<LedgerEntry> ForRank(Rank rank) const;

  // A life of the rank was told. Handing one again is fine; handing a fired one is kFailedPrecondition.
  Status MarkHanded(InjectionId id);

  // Takes the fired mask of `rank`'s page and returns the entries that are new in it. Bits that are not injections of
  // this rank are ignored: the page belongs to a process that may have lost its mind.
  std::vector<LedgerEntry> MarkFiredMask(Rank rank, uint64_t mask);

  const std::vector<LedgerEntry>& entries() const { return entries_; }

 private:
  Result<LedgerEntry*> Find(InjectionId id);

  std::vector<LedgerEntry> entries_;
};

}  // namespace kintsugi
