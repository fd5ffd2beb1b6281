// SaveHistory: what became of a run's saves, for the log, `kintsugi status` and the summary.
//
// Threads: none.
// Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/core/controller_types.h"

namespace kintsugi {

struct SaveHistory {
  struct Good {
    core::Checkpoint checkpoint;
    TimePoint known_at;  // it became visible then, or was found when the run, or this leader, began
  };
  struct Failed {
    core::SaveSettled settled;
    TimePoint at;
  };
  uint64_t made = 0, failed = 0;
  std::optional<Good> newest;
  std::optional<Failed> last_failure;
  std::string remark;  // of the newest save that was made; empty: nothing was remarked on it

  void OnMade(const core::Checkpoint& checkpoint, TimePoint now);
  // The line at warning level: which, why, and how old what would be gone back to is.
  std::string OnFailed(const core::SaveSettled& settled, TimePoint now);
  // The line at warning level where the remark is another one than before; else empty.
  std::string OnRemark(const core::SaveSettled& settled);
};

}  // namespace kintsugi
