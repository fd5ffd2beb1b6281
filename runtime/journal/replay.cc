#include "runtime/journal/replay.h"

#include <exception>

#include "runtime/base/overloaded.h"
#include "runtime/journal/digest.h"
#include "runtime/journal/text.h"

namespace kintsugi::journal {

std::vector<core::ControllerAction> Apply(core::ControllerCore& core, const Input& input) {
  return std::visit(Overloaded{
                        [&](const Start&) { return core.Start(input.now); },
                        [&](const ArmedInjections& i) {
                          core.SetInjections(i.rank, i.injections);
                          return std::vector<core::ControllerAction>();
                        },
                        [&](const core::ControllerEvent& event) { return core.Step(event, input.now); },
                    },
                    input.what);
}

bool IsQuiet(const Input& input) {
  const auto* event = std::get_if<core::ControllerEvent>(&input.what);
  if (!event || input.actions > 0) return false;
  const auto* from = std::get_if<core::FromAgent>(event);
  return std::holds_alternative<core::Tick>(*event) || (from && std::holds_alternative<core::Beat>(from->message));
}

namespace {

std::string Compare(const Input& input, const std::vector<core::ControllerAction>& actions, uint64_t digest) {
  if (actions.size() != input.actions)
    return std::to_string(input.actions) + " actions were recorded, " + std::to_string(actions.size()) + " came now";
  if (input.actions > 0 && digest != input.digest) return "as many actions came as were recorded, but others";
  return "";
}

class Replayer {
 public:
  Replayer(const JournalReader& reader, const core::Policy& policy, const OnInput& on_input)
      : reader_(reader), on_input_(on_input), core_(policy, reader.preamble().term) {}

  // False: it ends here.
  bool Take(const Input& input) {
    if (std::holds_alternative<Start>(input.what)) result.begin = input.now;
    result.last = input.now;
    ++result.inputs;
    result.quiet += IsQuiet(input);
    std::vector<core::ControllerAction> actions;
    std::string failed_check, different;
    try {
      actions = Apply(core_, input);
    } catch (const std::exception& error) {
      failed_check = error.what();
    }
    if (input.threw == failed_check.empty())
      different =
          input.threw ? "a check of the core failed then, and none now" : "a check of the core fails: " + failed_check;
    digest_.Add(actions);
    if (different.empty()) different = Compare(input, actions, digest_.value());
    result.actions += actions.size();
    if (on_input_) on_input_(input, actions);
    if (!different.empty())
      result.difference = {reader_.record(), result.inputs, input.now - result.begin,
                           WriteInput(input, reader_.preamble().term, result.begin), different};
    else
      result.failed_check = failed_check;
    return !result.difference && failed_check.empty();
  }

  Replayed result;

 private:
  const JournalReader& reader_;
  const OnInput& on_input_;
  core::ControllerCore core_;
  ActionDigest digest_;
};

}  // namespace

Result<Replayed> Replay(JournalReader& reader, const core::Policy& policy, const OnInput& on_input) {
  KINTSUGI_RETURN_IF_ERROR(policy.Validate());
  if (policy.world_size != reader.preamble().policy.world_size)
    return Status(StatusCode::kInvalidArgument, "the run had " + std::to_string(reader.preamble().policy.world_size) +
                                                    " ranks: it cannot be replayed with " +
                                                    std::to_string(policy.world_size));
  Replayer replayer(reader, policy, on_input);
  std::vector<Input> inputs;
  while (true) {
    KINTSUGI_ASSIGN_OR_RETURN(const bool more, reader.Next(&inputs));
    if (!more) break;
    for (const Input& input : inputs)
      if (!replayer.Take(input)) return std::move(replayer.result);
  }
  return std::move(replayer.result);
}

}  // namespace kintsugi::journal
