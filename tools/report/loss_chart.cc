#include "tools/report/loss_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tools/report/decimate.h"
#include "tools/report/svg.h"
#include "tools/report/text.h"
#include "tools/report/ticks.h"

namespace kintsugi {
namespace {

// Units of the SVG's own coordinates; it is stretched to the space it gets.
constexpr double kWidth = 1000;
constexpr double kHeight = 400;
constexpr size_t kMaxHoverColumns = 120;
constexpr double kStackedPercent = 3;  // marks closer than this are stacked

struct Frame {
  double first_step = 0;
  double last_step = 1;
  double low = 0;
  double high = 1;

  double XPercent(double step) const { return 100 * (step - first_step) / (last_step - first_step); }
  double YPercent(double loss) const { return 100 * (high - loss) / (high - low); }
  std::string Point(double step, double loss) const {
    return Fixed(XPercent(step) * kWidth / 100, 1) + " " + Fixed(YPercent(loss) * kHeight / 100, 1);
  }
};

void Widen(const std::vector<double>& losses, double* low, double* high) {
  for (double loss : losses) {
    if (!std::isfinite(loss)) continue;
    *low = std::min(*low, loss);
    *high = std::max(*high, loss);
  }
}

// nullopt when there is no finite loss to draw.
std::optional<Frame> MakeFrame(const RunRecord& record, const RunRecord* reference) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  Widen(record.losses, &low, &high);
  if (reference != nullptr) Widen(reference->losses, &low, &high);
  if (!(low <= high)) return std::nullopt;
  const double margin = high > low ? (high - low) * 0.06 : std::max(std::abs(high) * 0.1, 1e-6);
  const RunRecord& other = reference != nullptr ? *reference : record;
  const double first = static_cast<double>(std::min(record.resumed_from, other.resumed_from)) + 1;
  const double last = static_cast<double>(std::max(record.last_step(), other.last_step()));
  Frame frame{first, std::max(first + 1, last), low - margin, high + margin};
  if (!std::isfinite(frame.high - frame.low)) return std::nullopt;
  return frame;
}

std::string CurvePath(const RunRecord& record, const Frame& frame, const ReportOptions& options, const char* css) {
  std::string data;
  bool pen_down = false;
  for (const CurvePoint& point : DecimateCurve(record.losses, options.max_curve_points)) {
    if (!std::isfinite(point.value)) {
      pen_down = false;
      continue;
    }
    const uint64_t step = record.resumed_from + 1 + (point.step - 1) * record.losses_every;
    data += (pen_down ? "L" : "M") + frame.Point(static_cast<double>(step), point.value);
    pen_down = true;
  }
  return SvgPath(css, data);
}

// The gold piece of the curve: from the last step before the fault to the first one after.
std::string Mends(const RunRecord& record, const Frame& frame) {
  std::string out;
  for (const ReportedIncident& incident : record.incidents) {
    const uint64_t step = incident.step.value();
    const auto before = record.LossOf(step);
    const auto after = record.LossOf(step + 1);
    if (!after || !std::isfinite(*after)) continue;
    const bool joined = before && std::isfinite(*before);
    out += SvgPath("mend", "M" + frame.Point(joined ? step : step + 1, joined ? *before : *after) + "L" +
                               frame.Point(static_cast<double>(step + 1), *after));
  }
  return out;
}

std::string ColumnTitle(const RunRecord& record, const RunRecord* reference, uint64_t first, uint64_t last) {
  if (first == last) {
    std::string out = "Step " + FormatCount(first) + ": loss " + FormatLoss(record.LossOf(first));
    if (reference != nullptr) out += ", undisturbed " + FormatLoss(reference->LossOf(first));
    return out;
  }
  return "Steps " + FormatCount(first) + " to " + FormatCount(last) + ": loss from " +
         FormatLoss(record.LossOf(first)) + " to " + FormatLoss(record.LossOf(last));
}

// Invisible columns that carry the tooltips.
std::string HoverColumns(const RunRecord& record, const RunRecord* reference, const Frame& frame) {
  std::string out = "<g class=\"hover\">\n";
  const size_t count = record.last_step() - record.resumed_from;
  const size_t columns = std::min(count, kMaxHoverColumns);
  for (size_t i = 0; i < columns; ++i) {
    const uint64_t first = record.resumed_from + count * i / columns + 1;
    const uint64_t last = record.resumed_from + count * (i + 1) / columns;
    const double left = std::max(0.0, frame.XPercent(static_cast<double>(first) - 0.5));
    const double right = std::min(100.0, frame.XPercent(static_cast<double>(last) + 0.5));
    out += SvgElement("rect",
                      {{"x", Fixed(left * kWidth / 100, 1)},
                       {"y", "0"},
                       {"width", Fixed((right - left) * kWidth / 100, 1)},
                       {"height", Fixed(kHeight, 0)}},
                      SvgElement("title", {}, EscapeHtml(ColumnTitle(record, reference, first, last)))) +
           "\n";
  }
  return out + "</g>\n";
}

// A crack through the plot at each incident, a link to its account.
std::string Seams(const RunRecord& record, const Frame& frame, const ReportOptions& options) {
  std::string out;
  double previous = -100;
  int stacked = 0;
  const size_t count = std::min(record.incidents.size(), options.max_table_rows);
  for (size_t i = 0; i < count; ++i) {
    const ReportedIncident& incident = record.incidents[i];
    const double at = std::clamp(frame.XPercent(static_cast<double>(incident.step.value()) + 0.5), 0.0, 100.0);
    stacked = std::abs(at - previous) < kStackedPercent ? stacked + 1 : 0;
    previous = at;
    const std::string id = std::to_string(incident.id);
    const bool drawn = i < options.max_incident_figures;
    out +=
        "<a class=\"seam\" href=\"#" + std::string(drawn ? "incident-" : "row-") + id +
        "\" style=\"left:" + Fixed(at, 2) + "%;--stack:" + std::to_string(std::min(stacked, 8)) +
        "\" aria-label=\"Incident " + id + ", after step " + FormatCount(incident.step.value()) +
        "\" title=\"Incident " + id + ", after step " + FormatCount(incident.step.value()) +
        "\"><svg viewBox=\"0 0 18 100\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path d=\"M9 0L7 9L11 20L6.5 "
        "31L10 44L12 55L7.5 67L10.5 79L8 90L9.5 100\"/><path class=\"thin\" d=\"M11 20L16 25M7.5 67L2 72\"/></svg><b>" +
        id + "</b></a>\n";
  }
  return out;
}

std::string Gridlines(const Axis& axis, const Frame& frame) {
  std::string out;
  for (double tick : axis.ticks) {
    const std::string y = Fixed(frame.YPercent(tick) * kHeight / 100, 1);
    out += SvgPath("grid", "M0 " + y + "H" + Fixed(kWidth, 0));
  }
  return out;
}

std::string AxisLabels(const Frame& frame, const Axis& losses) {
  std::string out = "<div class=\"yaxis\" aria-hidden=\"true\">\n";
  for (double tick : losses.ticks) {
    out += "<span style=\"top:" + Fixed(frame.YPercent(tick), 2) + "%\">" + Fixed(tick, losses.decimals) + "</span>";
  }
  out += "</div>\n<div class=\"xaxis\" aria-hidden=\"true\">\n";
  const Axis steps = RoundTicks(frame.first_step, frame.last_step, 8);
  for (size_t i = 0; i < steps.ticks.size(); ++i) {
    const double tick = steps.ticks[i];
    if (tick != std::floor(tick)) continue;
    out += "<span" + std::string(i % 2 == 0 ? " class=\"spare\"" : "") +
           " style=\"left:" + Fixed(frame.XPercent(tick), 2) + "%\">" + FormatCount(static_cast<uint64_t>(tick)) +
           "</span>";
  }
  return out +
         "</div>\n<span class=\"ytitle\" aria-hidden=\"true\">loss</span>\n"
         "<span class=\"xtitle\" aria-hidden=\"true\">step</span>\n";
}

std::string Legend(const RunRecord& record, bool with_reference) {
  std::string out = "<ul class=\"legend\">";
  if (with_reference) out += "<li><i class=\"key ref\"></i>undisturbed run</li>";
  out += "<li><i class=\"key run\"></i>" + std::string(record.incidents.empty() ? "this run" : "run with faults") +
         "</li>";
  const bool mended = std::any_of(record.incidents.begin(), record.incidents.end(),
                                  [](const ReportedIncident& incident) { return incident.resumed_ms.has_value(); });
  if (!record.incidents.empty()) {
    out += "<li><i class=\"key gold\"></i>" + std::string(mended ? "mended here" : "broken here") + "</li>";
  }
  return out + "</ul>\n";
}

std::string LossRows(const RunRecord& record, const RunRecord* reference, const ReportOptions& options) {
  std::string out =
      "<details class=\"data\"><summary>The losses as a table</summary>\n<div class=\"scroll\" role=\"region\" "
      "aria-label=\"Table of losses\" tabindex=\"0\"><table class=\"figures\"><thead><tr><th scope=\"col\">step</th>"
      "<th scope=\"col\">loss</th>";
  if (reference != nullptr) out += "<th scope=\"col\">undisturbed</th>";
  out += "</tr></thead><tbody>\n";
  const size_t count = record.last_step() - record.resumed_from;
  const size_t rows = std::min(count, std::max<size_t>(options.max_loss_rows, 1));
  for (size_t i = 0; i < rows; ++i) {
    const uint64_t step = record.resumed_from + (rows == 1 ? count : 1 + (count - 1) * i / (rows - 1));
    out += "<tr><th scope=\"row\">" + FormatCount(step) + "</th><td>" + FormatLoss(record.LossOf(step)) + "</td>";
    if (reference != nullptr) out += "<td>" + FormatLoss(reference->LossOf(step)) + "</td>";
    out += "</tr>\n";
  }
  out += "</tbody></table></div>";
  if (rows < count) {
    out += "<p class=\"note\">" + FormatCount(rows) + " of " + FormatCount(count) + " steps; summary.json has " +
           (record.losses_every > 1 ? "one of " + FormatCount(record.losses_every) : "every one") + ".</p>";
  }
  return out + "</details>\n";
}

std::string Description(const RunRecord& record, const RunComparison* comparison) {
  std::string out =
      "Loss over " + Counted(record.last_step() - record.resumed_from, "committed step", "committed steps");
  if (!record.losses.empty()) {
    out += ", from " + FormatLoss(record.losses.front()) + " to " + FormatLoss(record.LossOf(record.last_step()));
  }
  out += ".";
  if (comparison == nullptr) return out;
  if (comparison->same_losses) return out + " Both curves are the same, bit for bit.";
  if (!comparison->first_difference) return out;
  return out + " The curves first differ at step " + FormatCount(*comparison->first_difference) +
         "; the largest difference is " + FormatLoss(comparison->largest_loss_difference) + ".";
}

}  // namespace

std::string LossChart(const RunRecord& record, const RunRecord* reference, const RunComparison* comparison,
                      const ReportOptions& options) {
  const std::string description = Description(record, comparison);
  const std::optional<Frame> frame = MakeFrame(record, reference);
  if (!frame) return "<p class=\"note\">No step with a finite loss was committed, so there is no curve to draw.</p>\n";
  const Axis losses = RoundTicks(frame->low, frame->high, 5);
  std::string shapes = "\n" + Gridlines(losses, *frame);
  if (reference != nullptr) shapes += CurvePath(*reference, *frame, options, "curve ref");
  shapes += CurvePath(record, *frame, options, "curve run") + Mends(record, *frame);
  shapes += HoverColumns(record, reference, *frame);
  std::string out = "<figure class=\"chart\">\n" + Legend(record, reference != nullptr) +
                    "<div class=\"plot\">\n<div class=\"area\">\n";
  out += SvgElement("svg",
                    {{"viewBox", "0 0 " + Fixed(kWidth, 0) + " " + Fixed(kHeight, 0)},
                     {"preserveAspectRatio", "none"},
                     {"role", "img"},
                     {"aria-label", description}},
                    shapes) +
         "\n" + Seams(record, *frame, options) + "</div>\n";
  out += AxisLabels(*frame, losses) + "</div>\n<figcaption>" + EscapeHtml(description) + "</figcaption>\n";
  return out + LossRows(record, reference, options) + "</figure>\n";
}

}  // namespace kintsugi
