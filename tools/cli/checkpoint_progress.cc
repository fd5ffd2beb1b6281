#include "tools/cli/checkpoint_progress.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>

namespace kintsugi::cli {
namespace {

constexpr double kShowEveryMs = 200;
constexpr int kBarCells = 24;

}  // namespace

CheckpointProgress::CheckpointProgress(std::string verb, bool enabled)
    : verb_(std::move(verb)),
      enabled_(enabled && ::isatty(STDERR_FILENO)),
      start_(SteadyClock::SteadyNow()),
      last_(start_) {}

void CheckpointProgress::Show(uint64_t done, uint64_t total) {
  if (!enabled_) return;
  const MutexLock lock(mutex_);
  const TimePoint now = SteadyClock::SteadyNow();
  if (ToMilliseconds(now - last_) < kShowEveryMs) return;
  last_ = now;
  shown_ = true;
  const double seconds = ToMilliseconds(now - start_) / 1000;
  std::string bar;
  if (total > 0) {
    const int full = static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * kBarCells);
    for (int i = 0; i < kBarCells; ++i) bar += i < full ? '#' : '.';
    bar = " [" + bar + "] of " + DescribeBytes(total);
  }
  std::fprintf(stderr, "\r\033[K%s %s%s, %s/s", verb_.c_str(), DescribeBytes(done).c_str(), bar.c_str(),
               DescribeBytes(static_cast<uint64_t>(static_cast<double>(done) / seconds)).c_str());
  std::fflush(stderr);
}

void CheckpointProgress::Clear() {
  const MutexLock lock(mutex_);
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

std::string DescribeBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[40];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

Result<uint64_t> ReadByteSize(const std::string& option, const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const std::pair<const char*, uint64_t> units[] = {{"", 1},
                                                    {"B", 1},
                                                    {"KB", 1000},
                                                    {"MB", 1000'000},
                                                    {"GB", 1000'000'000},
                                                    {"TB", 1000'000'000'000},
                                                    {"KiB", uint64_t{1} << 10},
                                                    {"MiB", uint64_t{1} << 20},
                                                    {"GiB", uint64_t{1} << 30},
                                                    {"TiB", uint64_t{1} << 40}};
  if (error == std::errc() && value > 0)
    for (const auto& [name, factor] : units)
      if (unit == name && value <= INT64_MAX / factor) return value * factor;
  return Status(StatusCode::kInvalidArgument, option + " " + text + ": say a size, such as 5GB or 512MiB");
}

Result<std::vector<formats::CutRule>> ReadCutRules(const std::string& text) {
  std::vector<formats::CutRule> rules;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string rule = text.substr(at, end - at);
    const size_t colon = rule.rfind(':');
    formats::CutRule cut;
    bool right = colon != std::string::npos && colon > 0;
    if (right) {
      cut.glob = rule.substr(0, colon);
      const std::string axis = rule.substr(colon + 1);
      if (axis == "none")
        cut.axis = -1;
      else
        right =
            axis.size() == 1 && axis[0] >= '0' && axis[0] < '0' + layout::kAxesMax && (cut.axis = axis[0] - '0') >= 0;
    }
    if (!right) return Status(StatusCode::kInvalidArgument, "--layout: '" + rule + "' is no GLOB:AXIS (or GLOB:none)");
    rules.push_back(std::move(cut));
    at = end + 1;
  }
  return rules;
}

}  // namespace kintsugi::cli
