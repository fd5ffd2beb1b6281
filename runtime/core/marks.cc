#include "runtime/core/marks.h"

#include <array>

#include "runtime/base/check.h"

namespace kintsugi::core {

std::string_view CollectiveEndName(CollectiveEnd end) {
  constexpr std::array<std::string_view, 3> kNames = {"open", "done", "failed"};
  KINTSUGI_CHECK(static_cast<size_t>(end) < kNames.size(), "a collective ends in no known way");
  return kNames[static_cast<size_t>(end)];
}

std::string_view BlameKindName(BlameKind kind) {
  constexpr std::array<std::string_view, 10> kNames = {"nothing",    "missing",    "stopped",     "other-kind", "other-type",
                                                       "other-size", "other-root", "other-order", "not-left",   "no-answer"};
  KINTSUGI_CHECK(static_cast<size_t>(kind) < kNames.size(), "a hang is explained by nothing known");
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace kintsugi::core
