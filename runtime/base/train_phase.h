// TrainPhase: where inside one training step a rank stands; Activity: what else it may be doing. Fault injections name
// a phase, and a rank tells its progress as (step, activity, phase) in one word of the page it shares with its
// launcher.
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

// What takes a rank longer than a step, by the trainer's own word. Numbers are part of the shared page's layout.
enum class Activity : uint8_t {
  kNone = 0,
  kWarmup = 1,   // first steps: caches, autotuning
  kEval = 2,     // evaluation between steps
  kSave = 3,     // a save of the trainer's own
  kCompile = 4,  // kernels or graphs are compiled
  kWait = 5,     // for a neighbour (a pipeline's send or receive): it is then never the one that hangs
  kSection = 6,  // code that only the trainer knows: as long as it takes, and whoever waits for it
};

inline constexpr std::array<std::string_view, 7> kActivityNames = {"none",    "warmup", "eval",   "save",
                                                                   "compile", "wait",   "section"};

// Nothing that takes longer than a step.
constexpr bool IsPartOfStep(Activity activity) { return activity == Activity::kNone || activity == Activity::kWait; }

constexpr std::string_view ActivityName(Activity activity) { return kActivityNames[static_cast<size_t>(activity)]; }

// Steps above this do not fit a progress word; no run reaches it.
inline constexpr uint64_t kMaxProgressStep = (uint64_t{1} << 40) - 1;
// Collectives of one step beyond these are not told apart.
inline constexpr uint32_t kMaxCollectives = (1 << 16) - 1;

// The progress word: collectives << 48 | step << 8 | activity << 4 | phase. REQUIRES: step <= kMaxProgressStep.
constexpr uint64_t PackProgress(uint64_t step, TrainPhase phase, Activity activity = Activity::kNone,
                                uint32_t collectives = 0) {
  return uint64_t{collectives < kMaxCollectives ? collectives : kMaxCollectives} << 48 | step << 8 |
         static_cast<uint64_t>(activity) << 4 | static_cast<uint64_t>(phase);
}

// The same place with so many collectives.
constexpr uint64_t WithCollectives(uint64_t word, uint32_t collectives) {
  return (word & ((uint64_t{1} << 48) - 1)) |
         uint64_t{collectives < kMaxCollectives ? collectives : kMaxCollectives} << 48;
}

// The same place with another activity.
constexpr uint64_t WithActivity(uint64_t word, Activity activity) {
  return (word & ~uint64_t{0xf0}) | static_cast<uint64_t>(activity) << 4;
}

struct Progress {
  uint64_t step = 0;
  std::optional<TrainPhase> phase;  // none: nothing begun, or a word that no trainer of ours wrote
  Activity activity = Activity::kNone;
  uint32_t collectives = 0;  // of the step, that were begun

  bool operator==(const Progress&) const = default;
};

constexpr std::optional<TrainPhase> TrainPhaseFromNumber(uint64_t number) {
  for (const TrainPhaseNameEntry& entry : kTrainPhases) {
    if (static_cast<uint64_t>(entry.phase) == number) return entry.phase;
  }
  return std::nullopt;
}

// An activity that is none of ours counts as none.
constexpr Activity ActivityFromNumber(uint64_t number) {
  return number < kActivityNames.size() ? static_cast<Activity>(number) : Activity::kNone;
}

// Total: takes any word, since the page may hold anything.
constexpr Progress UnpackProgress(uint64_t word) {
  return {word >> 8 & kMaxProgressStep, TrainPhaseFromNumber(word & 0xf), ActivityFromNumber(word >> 4 & 0xf),
          static_cast<uint32_t>(word >> 48)};
}

}  // namespace kintsugi
