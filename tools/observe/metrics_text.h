// MetricsText: families of metrics as text that Prometheus reads, in the dialect that the reader asked for: OpenMetrics
// 1.0, or the older text format 0.0.4, which lacks units and the end mark and names counters with their suffix.
//
// Threads: none.
// Errors: none; what is not a number is written as NaN, text that is no UTF-8 is mended.
// Invariants: families come one after the other, each with its kind, unit and help before its samples; a unit is the
// end of its family's name.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/launcher/run/seconds_histogram.h"

namespace kintsugi::observe {

enum class Dialect { kOpenMetrics, kPrometheus };

// What the answer's Content-Type must say.
std::string_view ContentTypeOf(Dialect dialect);
// By the request's Accept: OpenMetrics where it is named at all.
Dialect DialectFor(std::string_view accept);

class MetricsText {
 public:
  enum class Kind { kGauge, kCounter, kHistogram, kInfo };
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  explicit MetricsText(Dialect dialect) : dialect_(dialect) {}

  // `name` without a counter's "_total" and an info's "_info". The samples that follow are this family's.
  void Family(std::string_view name, Kind kind, std::string_view help, std::string_view unit = "");
  void Sample(double value, Labels labels = {});
  void Histogram(const SecondsHistogram& histogram);
  // A family of one sample.
  void Gauge(std::string_view name, double value, std::string_view help, std::string_view unit = "");
  void Counter(std::string_view name, double value, std::string_view help, std::string_view unit = "");

  std::string Take();

 private:
  void Line(std::string_view suffix, double value, Labels labels);

  const Dialect dialect_;
  std::string name_;
  Kind kind_ = Kind::kGauge;
  std::string text_;
};

}  // namespace kintsugi::observe
