#include "runtime/core/policy.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

std::string Seconds(Duration d) { return std::to_string(std::chrono::duration<double>(d).count()) + " s"; }

Status OutOfRange(const std::string& field, const std::string& value, const std::string& rule) {
  return {StatusCode::kInvalidArgument, field + " is " + value + "; " + rule};
}

}  // namespace

Status Policy::Validate() const {
  if (world_size < 1 || world_size > 1'000'000)
    return OutOfRange("world size", std::to_string(world_size), "it must be 1 to 1000000");
  if (max_respawns < 0) return OutOfRange("max respawns", std::to_string(max_respawns), "it must not be negative");
  if (silence < 300ms || silence > 600s)
    return OutOfRange("silence limit", Seconds(silence), "it must be 0.3 s to 600 s");
  if (step_timeout < silence)
    return OutOfRange("step timeout", Seconds(step_timeout),
                      "it must be at least the silence limit, " + Seconds(silence));
  if (join_timeout < silence)
    return OutOfRange("join timeout", Seconds(join_timeout),
                      "it must be at least the silence limit, " + Seconds(silence));
  if (repairs_per_rank < 1)
    return OutOfRange("repairs per rank", std::to_string(repairs_per_rank), "it must be at least 1");
  if (!(hang_factor == 0 || (hang_factor >= 2 && hang_factor <= 1000)))
    return OutOfRange("hang factor", std::to_string(hang_factor),
                      "it must be 0 (never) or 2 to 1000 learnt step times");
  if (hang_least < 100ms) return OutOfRange("least hang time", Seconds(hang_least), "it must be at least 0.1 s");
  if (grace <= 0s) return OutOfRange("grace", Seconds(grace), "it must be positive");
  if (save_every > 0 && save_directory.empty())
    return {StatusCode::kInvalidArgument,
            "save every " + std::to_string(save_every) + " steps, but no save directory is set"};
  if (snapshot_auto && snapshot_every > 0)
    return OutOfRange("snapshot interval", std::to_string(snapshot_every), "it is either a number of steps or 'auto'");
  return Status::Ok();
}

}  // namespace kintsugi::core
