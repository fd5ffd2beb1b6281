// The plan of a certification: which faults are tried on a program, in which order.
//
// The order is that of worth, so that a plan that is cut short (time, Ctrl-C) has tried what finds most: an exception
// and a kill in every phase on the last rank, then on the first, then doubles, then an exception at each collective of
// a step in turn, then the other kinds.
//
// Threads: pure functions.
// Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/inject/injection.h"

namespace kintsugi {

// One run with faults.
struct CertifyCell {
  std::string row;                  // what stands at the head of its row: "kill, rank 3", "twice: ..."
  std::optional<TrainPhase> phase;  // its column; none: a double or a collective, which has a row of its own
  std::vector<Injection> faults;
  bool operator==(const CertifyCell&) const = default;

  std::string Name() const;  // unique in a plan
  std::string Slug() const;  // the same as a folder's name
  bool IsAtCollective() const;
};

struct CertifyScope {
  int world_size = 2;
  uint64_t steps = 2;  // of the undisturbed run
  bool quick = false;
};

// How many collectives of a step are tried at most; where it has fewer, the first that is not reached ends them.
inline constexpr int kCollectivesTried = 64;

// REQUIRES: world_size >= 1, steps >= 2.
std::vector<CertifyCell> MakeCertifyPlan(const CertifyScope& scope);

// A double whose faults strike only in phases that the program marks: those of another are moved into the one before it,
// so that they still strike one behind the other; at worst into the update, which every program has. `unmarked`: what the
// single faults found out.
CertifyCell WithinMarked(CertifyCell cell, const std::set<TrainPhase>& unmarked);

// The step that faults strike at: in the middle, with one step after it for the second of a double.
Step StruckStep(uint64_t steps);

}  // namespace kintsugi
