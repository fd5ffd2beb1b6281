// What `kintsugi ckpt` shows while it works, and the small values that its options are.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "replica/formats/format.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace kintsugi::cli {

// One live line on standard error where that is a terminal: bytes, share, rate.
// Threads: any.
class CheckpointProgress {
 public:
  CheckpointProgress(std::string verb, bool enabled);
  ~CheckpointProgress() { Clear(); }
  // `total` 0: not known.
  void Show(uint64_t done, uint64_t total);
  void Clear();
  std::function<void(uint64_t, uint64_t)> Callback() {
    return [this](uint64_t done, uint64_t total) { Show(done, total); };
  }

 private:
  const std::string verb_;
  const bool enabled_;
  const TimePoint start_;
  Mutex mutex_;
  TimePoint last_ KINTSUGI_GUARDED_BY(mutex_);
  bool shown_ KINTSUGI_GUARDED_BY(mutex_) = false;
};

// "1.50 GiB"
std::string DescribeBytes(uint64_t bytes);
// "5GB", "512MiB", "4096": kInvalidArgument names the option.
Result<uint64_t> ReadByteSize(const std::string& option, const std::string& text);
// "GLOB:AXIS,GLOB:none,..": kInvalidArgument names the rule.
Result<std::vector<formats::CutRule>> ReadCutRules(const std::string& text);

}  // namespace kintsugi::cli
