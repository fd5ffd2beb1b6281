#include "runtime/launcher/run/save_history.h"

#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace kintsugi {

void SaveHistory::OnMade(const core::Checkpoint& checkpoint, TimePoint now) {
  ++made;
  newest = {checkpoint, now};
}

std::string SaveHistory::OnFailed(const core::SaveSettled& settled, TimePoint now) {
  KINTSUGI_CHECK(!settled.saved, "a save that was made is told as one that failed");
  ++failed;
  last_failure = {settled, now};
  const std::string age =
      newest ? std::to_string(static_cast<int64_t>(ToMilliseconds(now - newest->known_at) / 1000)) : "none";
  return LogLine("save_failed", {{"step", settled.step.ToString()},
                                 {"rank", settled.rank.ToString()},
                                 {"why", settled.text},
                                 {"last_good_step", newest ? newest->checkpoint.step.ToString() : "none"},
                                 {"last_good_age_s", age},
                                 {"failed_so_far", std::to_string(failed)}});
}

std::string SaveHistory::OnRemark(const core::SaveSettled& settled) {
  KINTSUGI_CHECK(settled.saved, "what failed in a save is taken for a remark");
  if (remark == settled.text) return "";
  remark = settled.text;
  if (remark.empty()) return "";
  return LogLine("save_remark",
                 {{"step", settled.step.ToString()}, {"rank", settled.rank.ToString()}, {"text", remark}});
}

}  // namespace kintsugi
