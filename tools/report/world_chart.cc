#include "tools/report/world_chart.h"

#include <algorithm>
#include <cmath>

#include "tools/report/svg.h"
#include "tools/report/text.h"
#include "tools/report/ticks.h"
#include "tools/report/words.h"

namespace kintsugi {
namespace {

// Units of the SVG's own coordinates; it is stretched to the space it gets.
constexpr double kChartWidth = 1000;
constexpr double kChartHeight = 100;

// The whole time of the run, and a little more than the most ranks that took part.
struct TimeFrame {
  double end_ns = 1;
  double high = 1;

  double XPercent(int64_t ns) const { return std::clamp(100 * static_cast<double>(ns) / end_ns, 0.0, 100.0); }
  double YPercent(double ranks) const { return 100 * (high - ranks) / high; }
  std::string X(int64_t ns) const { return Fixed(XPercent(ns) * kChartWidth / 100, 1); }
  std::string Y(double ranks) const { return Fixed(YPercent(ranks) * kChartHeight / 100, 1); }
};

TimeFrame FrameOf(const RunRecord& record) {
  uint64_t most = std::max<uint64_t>(1, RanksBefore(record.worlds.front()));
  for (const WorldSpan& world : record.worlds) most = std::max<uint64_t>(most, world.ranks);
  return {std::max(1.0, static_cast<double>(record.end_ns)), static_cast<double>(most) * 1.15};
}

std::string WorldLine(const RunRecord& record, const TimeFrame& frame) {
  std::string data = "M0 " + frame.Y(static_cast<double>(RanksBefore(record.worlds.front())));
  for (const WorldSpan& world : record.worlds) data += "H" + frame.X(world.start_ns) + "V" + frame.Y(world.ranks);
  return SvgPath("curve world", data + "H" + Fixed(kChartWidth, 0));
}

struct TimeUnit {
  const char* name;
  double ns;
};

TimeUnit UnitFor(double end_ns) {
  constexpr double kSecond = 1e9;
  if (end_ns < 180 * kSecond) return {"seconds", kSecond};
  return end_ns < 3 * 3600 * kSecond ? TimeUnit{"minutes", 60 * kSecond} : TimeUnit{"hours", 3600 * kSecond};
}

std::string TimeLabels(const TimeFrame& frame, const Axis& ranks) {
  std::string out = "<div class=\"yaxis\" aria-hidden=\"true\">\n";
  for (double tick : ranks.ticks)
    if (tick == std::floor(tick))
      out += "<span style=\"top:" + Fixed(frame.YPercent(tick), 2) + "%\">" + FormatCount(static_cast<uint64_t>(tick)) +
             "</span>";
  out += "</div>\n<div class=\"xaxis\" aria-hidden=\"true\">\n";
  const TimeUnit unit = UnitFor(frame.end_ns);
  const Axis time = RoundTicks(0, frame.end_ns / unit.ns, 8);
  for (size_t i = 0; i < time.ticks.size(); ++i)
    out += "<span" + std::string(i % 2 == 1 ? " class=\"spare\"" : "") +
           " style=\"left:" + Fixed(100 * time.ticks[i] * unit.ns / frame.end_ns, 2) + "%\">" +
           Fixed(time.ticks[i], time.decimals) + "</span>";
  return out +
         "</div>\n<span class=\"ytitle\" aria-hidden=\"true\">ranks</span>\n"
         "<span class=\"xtitle\" aria-hidden=\"true\">" +
         unit.name + " since the run began</span>\n";
}

std::string WhoWords(const WorldSpan& world) {
  const std::string left = world.left.empty() ? "" : RankWords(world.left) + " left";
  const std::string came = world.came.empty() ? "" : RankWords(world.came) + " came";
  return left + (left.empty() || came.empty() ? "" : ", ") + came;
}

struct Cause {
  std::string words;
  std::string link;  // its number, to its account; empty: the page has none
};

Cause CauseOf(const RunRecord& record, const WorldSpan& world, const ReportOptions& options) {
  for (size_t i = 0; i < record.incidents.size(); ++i) {
    const ReportedIncident& incident = record.incidents[i];
    if (incident.id != world.incident) continue;
    const std::string id = std::to_string(incident.id);
    Cause cause{incident.ranks.empty() && !incident.cause.empty() ? incident.cause : FaultWords(incident), ""};
    if (i < options.max_table_rows)
      cause.link = "<a href=\"#" + std::string(i < options.max_incident_figures ? "incident-" : "row-") + id + "\">" +
                   id + "</a>";
    return cause;
  }
  return {world.incident == 0 ? "found by the leader that took over" : "incident " + std::to_string(world.incident),
          ""};
}

std::string Changes(const RunRecord& record, const ReportOptions& options) {
  std::string out =
      "<div class=\"scroll wide\" role=\"region\" aria-label=\"Changes of the world\" tabindex=\"0\"><table "
      "class=\"figures index\"><thead><tr>";
  for (const char* name : {"time", "after step", "who and why", "ranks", "incident"})
    out += "<th scope=\"col\">" + std::string(name) + "</th>";
  out += "</tr></thead><tbody>\n";
  const size_t shown = std::min(record.worlds.size(), options.max_table_rows);
  for (size_t i = record.worlds.size() - shown; i < record.worlds.size(); ++i) {
    const WorldSpan& world = record.worlds[i];
    const Cause cause = CauseOf(record, world, options);
    out += "<tr><th scope=\"row\">" + EscapeHtml(TimeOfDay(record, world.start_ns)) + "</th><td>" +
           FormatCount(world.step.value()) + "</td><td class=\"what\">" +
           EscapeHtml(Elide(WhoWords(world) + ": " + cause.words, options.max_text_bytes)) + "</td><td>" +
           FormatCount(RanksBefore(world)) + " \xE2\x86\x92 " + FormatCount(world.ranks) + "</td><td>" + cause.link +
           "</td></tr>\n";
  }
  out += "</tbody></table></div>\n";
  if (shown < record.worlds.size())
    out += "<p class=\"note\">The last " + FormatCount(shown) + " of " + FormatCount(record.worlds.size()) +
           " changes; summary.json has every one.</p>\n";
  return out;
}

}  // namespace

uint64_t RanksBefore(const WorldSpan& change) {
  const uint64_t before = change.ranks + change.left.size();
  return before - std::min<uint64_t>(before, change.came.size());
}

std::string WorldChart(const RunRecord& record, const ReportOptions& options) {
  if (record.worlds.empty()) return "";
  const TimeFrame frame = FrameOf(record);
  const Axis ranks = RoundTicks(0, frame.high, 4);
  std::string shapes = "\n";
  for (double tick : ranks.ticks)
    if (tick == std::floor(tick)) shapes += SvgPath("grid", "M0 " + frame.Y(tick) + "H" + Fixed(kChartWidth, 0));
  shapes += WorldLine(record, frame);
  const std::string description = "Ranks that took part: " + FormatCount(RanksBefore(record.worlds.front())) +
                                  " at first, " + FormatCount(record.worlds.back().ranks) + " in the end, of " +
                                  FormatCount(record.world_size) + " at most.";
  return "<figure class=\"chart\">\n<div class=\"plot\">\n<div class=\"area low\">\n" +
         SvgElement("svg",
                    {{"viewBox", "0 0 " + Fixed(kChartWidth, 0) + " " + Fixed(kChartHeight, 0)},
                     {"preserveAspectRatio", "none"},
                     {"role", "img"},
                     {"aria-label", description}},
                    shapes) +
         "\n</div>\n" + TimeLabels(frame, ranks) + "</div>\n<figcaption>" + EscapeHtml(description) +
         "</figcaption>\n</figure>\n" + Changes(record, options);
}

}  // namespace kintsugi
