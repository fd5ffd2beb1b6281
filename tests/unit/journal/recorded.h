// A virtual run, recorded by the real recorder into a file.
#pragma once

#include <fstream>
#include <sstream>

#include "runtime/journal/recorder.h"
#include "runtime/journal/replay.h"
#include "runtime/journal/text.h"
#include "tests/support/recorded_inputs.h"
#include "tests/support/temporary_folder.h"

namespace kintsugi::journal {

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What a driver does: steps a core and tells the recorder.
inline void Feed(core::ControllerCore& core, Recorder& recorder, const Input& input) {
  const std::vector<core::ControllerAction> actions = Apply(core, input);
  if (std::holds_alternative<Start>(input.what)) return recorder.Started(input.now, actions);
  if (const auto* i = std::get_if<ArmedInjections>(&input.what)) return recorder.SetInjections(i->rank, i->injections);
  recorder.Stepped(std::get<core::ControllerEvent>(input.what), input.now, actions);
}

inline std::unique_ptr<Recorder> Record(const RecorderOptions& options, const core::Policy& policy,
                                        const std::vector<Input>& inputs,
                                        std::shared_ptr<LogSink> log = NullLogSink()) {
  auto recorder = Recorder::Open(options, policy, {1, 1}, log).value();
  core::ControllerCore core(policy, {1, 1});
  for (const Input& input : inputs) Feed(core, *recorder, input);
  return recorder;
}

inline sim::Plan SomePlan(uint64_t seed) { return sim::DrawPlan(seed, sim::FindProfile("quick").value(), 4); }

}  // namespace kintsugi::journal
