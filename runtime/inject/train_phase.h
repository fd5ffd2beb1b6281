// TrainPhase: where inside one training step a rank stands. Fault injections name a phase, and a rank tells its
// progress as (step, phase) in one word of the page it shares with its launcher.
//
// Units: the step in a progress word is the number being computed, from 1; the word 0 means "nothing begun yet".
// Threads: values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kintsugi {

// In the order in which a step passes them. kBetween follows kParamSync: the step is done, the next has not begun.
// Numbers are part of the shared page's layout; 0 is left for "none".
enum class TrainPhase : uint8_t {
  kForward = 1,
  kBackward = 2,
  kGradientSync = 3,
  kGate = 4,
  kUpdate = 5,
  kParamSync = 6,
  kBetween = 7,
};

struct TrainPhaseNameEntry {
  TrainPhase phase;
  std::string_view name;
};

// The one list of phases and of the names that users write and read.
inline constexpr std::array<TrainPhaseNameEntry, 7> kTrainPhases{{
    {TrainPhase::kForward, "forward"},
    {TrainPhase::kBackward, "backward"},
    {TrainPhase::kGradientSync, "gradient-sync"},
    {TrainPhase::kGate, "gate"},
    {TrainPhase::kUpdate, "update"},
    {TrainPhase::kParamSync, "param-sync"},
    {TrainPhase::kBetween, "between"},
}};

constexpr std::string_view TrainPhaseName(TrainPhase phase) {
  for (const TrainPhaseNameEntry& entry : kTrainPhases) {
    if (entry.phase == phase) return entry.name;
  }
  return "none";
}

constexpr std::optional<TrainPhase> TrainPhaseFromName(std::string_view name) {
  for (const TrainPhaseNameEntry& entry : kTrainPhases) {
    if (entry.name == name) return entry.phase;
  }
  return std::nullopt;
}

// Steps above this do not fit a progress word; no run reaches it.
inline constexpr uint64_t kMaxProgressStep = (uint64_t{1} << 56) - 1;

// The progress word: step << 8 | phase. REQUIRES: step <= kMaxProgressStep.
constexpr uint64_t PackProgress(uint64_t step, TrainPhase phase) {
  return step << 8 | static_cast<uint64_t>(phase);
}

struct Progress {
  uint64_t step = 0;
  std::optional<TrainPhase> phase;  // none: nothing begun, or a word that no trainer of ours wrote
};

// Total: takes any word, since the page may hold anything.
constexpr Progress UnpackProgress(uint64_t word) {
  Progress progress{word >> 8, std::nullopt};
  const uint64_t number = word & 0xff;
  for (const TrainPhaseNameEntry& entry : kTrainPhases) {
    if (static_cast<uint64_t>(entry.phase) == number) progress.phase = entry.phase;
  }
  return progress;
}

}  // namespace kintsugi
