// Injection: one fault that a user orders, written KIND:RANK@STEP[:PHASE][,key=value]...
//
// Why its own language: the same words are used on the command line, in the control socket, in logs and in reports, so
// that a report can be pasted back as an order.
// Threads: values and pure functions.
// Errors: kInvalidArgument that shows the column, what was found there, the grammar and an example.
// Invariants: ParseInjection(ToString(x)) == x for every x that ParseInjection accepts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/train_phase.h"

namespace kintsugi {

enum class InjectionKind {
  kKill,      // SIGKILL to itself
  kExit,      // leaves with exit_code
  kThrow,     // throws an exception out of the loop's body
  kFreeze,    // SIGSTOP to itself, never continued
  kHang,      // its trainer's thread stands still, its agent lives
  kUce,       // uncorrectable memory error, simulated: tensors are poisoned and the error is signalled at once
  kSlow,      // every forward pass takes longer from this step on, in this life of the rank
  kFlip,      // one bit of a tensor flips, and nobody is told
  kFlipGrad,  // one bit of what it gives to a collective flips, and nobody is told: a device that computes wrongly
  kDevice,    // its device reports an Xid (runtime/device says what follows), or damaged memory of named tensors
};

// How much of a rank's memory an uncorrectable error makes untrusted.
enum class UceLevel {
  kLow,   // only the named tensors: patch them
  kHigh,  // all of the rank's memory: rebuild it in the living process
};

// What ends a hang.
enum class HangUntil {
  kKill,  // nothing but the end of the process
  kStop,  // the next incident, as a collective that is aborted
};

struct Injection {
  InjectionKind kind = InjectionKind::kKill;
  Rank rank{0};
  Step step{1};  // the number being computed, from 1
  TrainPhase phase = TrainPhase::kForward;
  // kKill, kExit, kThrow, kFreeze, and kFlipGrad, which has no other place (1): where the step is about to begin its n-th collective, not at a mark; 0: at the mark.
  // Only together with the phase that every step begins in.
  int collective = 0;
  int exit_code = 1;                   // kExit: 1 to 255
  HangUntil until = HangUntil::kKill;  // kHang
  int slow_ms = 100;                   // kSlow: 1 to 3,600,000
  int xid = 94;                        // kDevice, without tensors: 1 to 9,999
  UceLevel level = UceLevel::kLow;     // kUce
  std::string tensors;  // kUce, kFlip, kDevice: pattern of tensor names (see glob.h); empty: all of the rank's first
                        // layout. A flip takes the first of them in order of their names. kDevice: empty: an Xid

  bool operator==(const Injection&) const = default;
};

// A longer SPEC is refused unread.
inline constexpr size_t kMaxInjectionSpecBytes = 1024;

KINTSUGI_EXPORT std::string_view InjectionKindName(InjectionKind kind);

KINTSUGI_EXPORT Result<Injection> ParseInjection(std::string_view spec);

// The canonical SPEC: the phase is always named, keys only where they differ from their default.
KINTSUGI_EXPORT std::string ToString(const Injection& injection);

// Grammar, phases, keys and an example in a few lines: for --help and for error messages.
KINTSUGI_EXPORT std::string_view InjectionGrammar();

}  // namespace kintsugi
