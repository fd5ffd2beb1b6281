#include "tools/replay/run_digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kintsugi {

uint64_t Chain(uint64_t before, uint64_t next) { return XXH3_64bits_withSeed(&next, sizeof next, before); }

void RunDigest::Mix(uint64_t number) { told_ = Chain(told_, number); }

void RunDigest::OnStart(TimePoint now, const std::vector<core::ControllerAction>& actions) {
  Mix(static_cast<uint64_t>(now.nanoseconds()));
  actions_.Add(actions);
}

void RunDigest::OnStep(const core::ControllerEvent& event, TimePoint now,
                       const std::vector<core::ControllerAction>& actions) {
  Mix(static_cast<uint64_t>(now.nanoseconds()));
  Mix(event.index());
  actions_.Add(actions);
  // Which event gave them, too: the actions' own digest runs on over those that give none.
  if (!actions.empty()) Mix(actions_.value());
}

void RunDigest::AddLine(const std::string& line) { told_ = XXH3_64bits_withSeed(line.data(), line.size(), told_); }

uint64_t RunDigest::value() const { return Chain(told_, actions_.value()); }

DigestedRun RunDigested(const sim::Plan& plan, const sim::LogFunction& log) {
  RunDigest digest;
  const sim::LogFunction both = [&](const std::string& line) {
    digest.AddLine(line);
    if (log) log(line);
  };
  DigestedRun run;
  run.outcome = sim::Cluster(plan, both, &digest).Run();
  run.digest = digest.value();
  return run;
}

}  // namespace kintsugi
