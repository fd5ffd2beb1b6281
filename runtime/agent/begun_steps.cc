#include "runtime/agent/begun_steps.h"

#include "runtime/base/check.h"

namespace kintsugi {

Step BegunSteps::SuspectFrom(ErrorTime when, uint64_t newest, uint64_t computing) const {
  if (when.known == ErrorTime::Known::kNow) return {};
  Step from;
  for (uint64_t step = newest; step > 0 && newest - step < kKept - 2 && At(step) > 0; --step) {
    const bool over = step < computing && At(step + 1) <= when.at.nanoseconds();
    if (when.known == ErrorTime::Known::kAt && over) break;
    from = Step(step);
    if (when.known == ErrorTime::Known::kUnknown) break;
    if (newest - step == kKept - 3) return Step(1);
  }
  KINTSUGI_CHECK(from.value() <= newest, "an update is suspect that has not begun");
  return from;
}

}  // namespace kintsugi
