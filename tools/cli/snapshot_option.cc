#include <charconv>

#include "tools/cli/common.h"

namespace kintsugi::cli {

Status TakeSnapshotEvery(const std::string& text, core::Policy* policy) {
  policy->snapshot_auto = text == "auto";
  policy->snapshot_every = 0;
  if (policy->snapshot_auto) return Status::Ok();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), policy->snapshot_every);
  if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          "--snapshot-every is '" + text + "'; it must be a number of steps, 0 for never, or 'auto'"};
}

}  // namespace kintsugi::cli
