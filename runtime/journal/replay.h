// Replay: a recorded run's inputs into a fresh ControllerCore, what comes out compared with what came out then.
//
// Threads: none.
// Errors: the reader's. A difference is a result, not an error: with the recording's own policy and build it is a bug,
// for the core depends on nothing but its inputs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/controller_core.h"
#include "runtime/journal/reader.h"

namespace kintsugi::journal {

struct Divergence {
  uint64_t record = 0;  // of the journal, from 1; 0 is its preamble
  uint64_t input = 0;   // from 1
  Duration at{};        // since the run began
  std::string event;    // in words
  std::string text;     // what was expected, what came
};

struct Replayed {
  uint64_t inputs = 0, quiet = 0, actions = 0;  // quiet: ticks and beats that nothing came out of
  TimePoint begin, last;
  std::optional<Divergence> difference;  // where the replay ended
  std::string failed_check;              // of the core, then and now: the run ended there
};

// After each input, in their order; `actions` are what came out now.
using OnInput = std::function<void(const Input& input, const std::vector<core::ControllerAction>& actions)>;

// `policy`: in place of the recorded one, to see what would have been decided. `on_input` may be null.
Result<Replayed> Replay(JournalReader& reader, const core::Policy& policy, const OnInput& on_input);

// One input into a core.
std::vector<core::ControllerAction> Apply(core::ControllerCore& core, const Input& input);
// A tick or a beat that nothing came out of.
bool IsQuiet(const Input& input);

}  // namespace kintsugi::journal
