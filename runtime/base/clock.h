// The clock seam: monotonic time as a value, so that pure code takes it as an argument and a simulator can supply it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kintsugi {

using Duration = std::chrono::nanoseconds;

// An instant on the machine's monotonic clock (CLOCK_MONOTONIC: the same for all processes of one host).
class TimePoint {
 public:
  constexpr TimePoint() = default;
  constexpr explicit TimePoint(Duration since_epoch) : since_epoch_(since_epoch) {}
  constexpr Duration since_epoch() const { return since_epoch_; }
  constexpr int64_t nanoseconds() const { return since_epoch_.count(); }
  static constexpr TimePoint Max() { return TimePoint(Duration::max()); }
  constexpr auto operator<=>(const TimePoint&) const = default;
  friend constexpr TimePoint operator+(TimePoint t, Duration d) { return TimePoint(t.since_epoch_ + d); }
  friend constexpr TimePoint operator-(TimePoint t, Duration d) { return TimePoint(t.since_epoch_ - d); }
  friend constexpr Duration operator-(TimePoint a, TimePoint b) { return a.since_epoch_ - b.since_epoch_; }

 private:
  Duration since_epoch_{0};
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// steady_clock is CLOCK_MONOTONIC on Linux with libstdc++.
class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return SteadyNow(); }
  static TimePoint SteadyNow() { return TimePoint(std::chrono::steady_clock::now().time_since_epoch()); }
};

inline double ToMilliseconds(Duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

// As people are told a wait: "90 s"; what is less than a second is left out.
inline std::string WholeSeconds(Duration d) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(d).count()) + " s";
}

}  // namespace kintsugi
