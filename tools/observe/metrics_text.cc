#include "tools/observe/metrics_text.h"

#include <charconv>
#include <cmath>

#include "runtime/base/check.h"
#include "tools/report/text.h"

namespace kintsugi::observe {
namespace {

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

// A bucket's bound has a fraction also where it is whole.
std::string Bound(double value) {
  std::string text = Number(value);
  return text.find_first_of(".eI") == std::string::npos ? text + ".0" : text;
}

std::string Escaped(std::string_view text, bool in_quotes) {
  std::string out;
  for (const char c : ToUtf8(text)) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\' || (in_quotes && c == '"')) {
      out += {'\\', c};
    } else {
      out += c;
    }
  }
  return out;
}

std::string_view KindName(MetricsText::Kind kind, Dialect dialect) {
  switch (kind) {
    case MetricsText::Kind::kGauge:
      return "gauge";
    case MetricsText::Kind::kCounter:
      return "counter";
    case MetricsText::Kind::kHistogram:
      return "histogram";
    case MetricsText::Kind::kInfo:
      return dialect == Dialect::kOpenMetrics ? "info" : "gauge";
  }
  return "unknown";
}

std::string_view SuffixOf(MetricsText::Kind kind) {
  if (kind == MetricsText::Kind::kCounter) return "_total";
  return kind == MetricsText::Kind::kInfo ? "_info" : "";
}

}  // namespace

std::string_view ContentTypeOf(Dialect dialect) {
  return dialect == Dialect::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                          : "text/plain; version=0.0.4; charset=utf-8";
}

Dialect DialectFor(std::string_view accept) {
  return accept.find("application/openmetrics-text") != std::string_view::npos ? Dialect::kOpenMetrics
                                                                               : Dialect::kPrometheus;
}

void MetricsText::Family(std::string_view name, Kind kind, std::string_view help, std::string_view unit) {
  KINTSUGI_CHECK(unit.empty() || name.ends_with("_" + std::string(unit)),
                 "the unit of " + std::string(name) + " is not the end of its name");
  name_ = name;
  kind_ = kind;
  const bool open = dialect_ == Dialect::kOpenMetrics;
  const std::string shown = open ? name_ : name_ + std::string(SuffixOf(kind));
  text_ += "# TYPE " + shown + " " + std::string(KindName(kind, dialect_)) + "\n";
  if (open && !unit.empty()) text_ += "# UNIT " + shown + " " + std::string(unit) + "\n";
  text_ += "# HELP " + shown + " " + Escaped(help, open) + "\n";
}

void MetricsText::Line(std::string_view suffix, double value, Labels labels) {
  text_ += name_ + std::string(suffix);
  char before = '{';
  for (const auto& [label, said] : labels) {
    text_ += before + std::string(label) + "=\"" + Escaped(said, true) + "\"";
    before = ',';
  }
  text_ += (before == ',' ? "} " : " ") + Number(value) + "\n";
}

void MetricsText::Sample(double value, Labels labels) { Line(SuffixOf(kind_), value, labels); }

void MetricsText::Histogram(const SecondsHistogram& histogram) {
  uint64_t up_to = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    up_to += histogram.counts()[i];
    const bool last = i == SecondsHistogram::kBounds.size();
    const std::string bound = last ? "+Inf" : Bound(SecondsHistogram::kBounds[i]);
    Line("_bucket", static_cast<double>(up_to), {{"le", bound}});
  }
  Line("_sum", histogram.sum(), {});
  Line("_count", static_cast<double>(up_to), {});
}

void MetricsText::Gauge(std::string_view name, double value, std::string_view help, std::string_view unit) {
  Family(name, Kind::kGauge, help, unit);
  Sample(value);
}

void MetricsText::Counter(std::string_view name, double value, std::string_view help, std::string_view unit) {
  Family(name, Kind::kCounter, help, unit);
  Sample(value);
}

std::string MetricsText::Take() {
  if (dialect_ == Dialect::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace kintsugi::observe
