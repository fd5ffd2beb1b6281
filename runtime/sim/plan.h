// What one run of the cluster is: its shape, its policy and its faults, all drawn from one seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/core/phase.h"
#include "runtime/core/policy.h"
#include "runtime/sim/state.h"

namespace kintsugi::sim {

enum class FaultType : uint8_t {
  kKill, kExit, kFreeze, kThrow, kThrowInUpdate, kUceLow, kUceHigh, kCommError, kShortGap, kLongGap, kBadReplacement,
  kHandlerFails, kHandlerHangs, kBitFlip, kSave, kStop,
};
inline constexpr int kFaultTypes = 16;
std::string FaultTypeName(FaultType type);

// Where a trainer's thread is.
enum class TrainerAt : uint8_t {
  kBoot, kParked, kForward, kGradients, kGate, kVerdict, kUpdate, kParamSync, kSavePoint, kHandler,
};
std::string TrainerAtName(TrainerAt at);

struct PlannedFault {
  FaultType type = FaultType::kKill;
  int rank = 0;
  int count = 1;                    // of bad replacements, failing handlers, flipped repairs
  // When: exactly one of the three.
  std::optional<Duration> at;
  std::optional<Phase> in_phase;    // when the controller enters the phase, plus `delay`
  int nth = 1;                      // ... for the nth time
  std::optional<TrainerAt> in_trainer;  // when the rank's trainer gets there in `step`
  uint64_t step = 0;
  Duration delay{};
  bool fired = false;

  std::string ToString() const;
};

enum class GateKind : uint8_t { kTrainer, kControlPlane, kOff };

struct Plan {
  uint64_t seed = 0;
  Policy policy;
  Claims claims;
  std::string layout_name;
  uint64_t steps = 8;
  GateKind gate = GateKind::kTrainer;
  bool watched = true;
  std::vector<PlannedFault> faults;

  std::string ToString() const;
};

Plan DrawPlan(uint64_t seed);

}  // namespace kintsugi::sim
