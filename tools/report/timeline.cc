#include "tools/report/timeline.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <vector>

#include "tools/report/extent.h"
#include "tools/report/text.h"
#include "tools/report/ticks.h"
#include "tools/report/words.h"

namespace kintsugi {
namespace {

constexpr size_t kMaxBarsPerLane = 400;
constexpr double kCrowdedPercent = 9;  // marks closer than this cannot both have a full label

// The stretch of time that is drawn: the incident, a little of what went before and of what followed.
class Window {
 public:
  explicit Window(const ReportedIncident& incident) : fault_ns_(incident.fault_ns) {
    const TimeExtent extent = IncidentExtent(incident);
    const double length =
        std::max<double>(static_cast<double>(extent.end_ns) - static_cast<double>(extent.start_ns), 1e6);
    start_ = static_cast<double>(extent.start_ns) - length * 0.07;
    length_ = length * 1.16;
  }

  double Percent(int64_t ns) const {
    return std::clamp((static_cast<double>(ns) - start_) / length_ * 100, 0.0, 100.0);
  }
  bool Shows(int64_t start_ns, int64_t end_ns) const {
    return static_cast<double>(end_ns) >= start_ && static_cast<double>(start_ns) <= start_ + length_;
  }
  double MsAfterFault(int64_t ns) const { return MsBetween(fault_ns_, ns); }
  double end_ms() const { return (start_ + length_ - static_cast<double>(fault_ns_)) / 1e6; }
  double PercentOfMs(double ms) const { return (static_cast<double>(fault_ns_) + ms * 1e6 - start_) / length_ * 100; }

 private:
  int64_t fault_ns_;
  double start_ = 0;
  double length_ = 1;
};

constexpr std::array<std::string_view, 11> kPhases = {"CONFIRM", "LOCK",   "STOP",     "CLEAN", "ADMIT", "REBUILD",
                                                      "REPAIR",  "VERIFY", "ROLLBACK", "DUMP",  "RENAME"};

// Where a phase stands in the order of an incident; names come from outside, and unknown ones come last.
size_t PhaseOrder(const std::string& phase) {
  return static_cast<size_t>(std::find(kPhases.begin(), kPhases.end(), phase) - kPhases.begin());
}

std::string PhaseClass(const std::string& phase) {
  const size_t order = PhaseOrder(phase);
  if (order == kPhases.size()) return "p-other";
  std::string name = "p-" + std::string(kPhases[order]);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return name;
}

std::string PhaseName(const std::string& phase, const ReportOptions& options) {
  return EscapeHtml(Elide(phase, std::min<size_t>(options.max_text_bytes, 40)));
}

struct Bar {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::string css;
  std::string label;  // HTML
  std::string title;  // HTML
};

std::string Place(const Window& window, int64_t start_ns, int64_t end_ns) {
  const double left = window.Percent(start_ns);
  return "left:" + Fixed(left, 3) + "%;width:" + Fixed(std::max(0.0, window.Percent(end_ns) - left), 3) + "%";
}

std::string DrawBar(const Window& window, const Bar& bar) {
  return "<span class=\"bar " + bar.css + "\" style=\"" + Place(window, bar.start_ns, bar.end_ns) + "\" title=\"" +
         bar.title + "\"><i>" + bar.label + "</i></span>";
}

std::string SpanTitle(const Window& window, const std::string& name, int64_t start_ns, int64_t end_ns) {
  return name + ": from " + FormatMs(window.MsAfterFault(start_ns)) + " to " + FormatMs(window.MsAfterFault(end_ns)) +
         ", " + FormatMs(MsBetween(start_ns, end_ns));
}

// `row` counts from 1. It is written out because the marks lie across all rows of the same grid.
std::string Lane(size_t row, const std::string& label, const std::string& bars) {
  const std::string at = " style=\"grid-row:" + std::to_string(row) + "\">";
  return "<div class=\"who\"" + at + label + "</div><div class=\"lane\"" + at + bars + "</div>\n";
}

std::string ControllerLane(const Window& window, const ReportedIncident& incident, const ReportOptions& options) {
  std::string bars;
  size_t drawn = 0;
  for (const ControllerPhaseSpan& span : incident.phases) {
    if (++drawn > kMaxBarsPerLane) break;
    const std::string name = PhaseName(span.phase, options);
    const std::string title =
        SpanTitle(window, name, span.start_ns, span.end_ns) + " (attempt " + std::to_string(span.attempt) + ")";
    bars += DrawBar(window, {span.start_ns, span.end_ns, PhaseClass(span.phase), name, title});
  }
  return Lane(1, "controller", bars);
}

// Where a rank had a process: a thin line; where it had none and should have: hatching.
std::string LifeOf(const Window& window, const RunRecord& record, Rank rank) {
  std::vector<const RankLifetime*> lives;
  for (const RankLifetime& life : record.lifetimes) {
    if (life.rank == rank) lives.push_back(&life);
  }
  std::sort(lives.begin(), lives.end(), [](const auto* a, const auto* b) { return a->start_ns < b->start_ns; });
  std::string out;
  for (size_t i = 0; i < lives.size(); ++i) {
    const int64_t end = lives[i]->end_ns.value_or(std::max(record.end_ns, lives[i]->start_ns));
    if (window.Shows(lives[i]->start_ns, end)) {
      out += "<span class=\"life\" style=\"" + Place(window, lives[i]->start_ns, end) + "\"></span>";
    }
    if (!lives[i]->end_ns) continue;
    const bool last = i + 1 == lives.size();
    if (last && lives[i]->cause.empty()) continue;  // it finished by itself; nobody misses it
    const int64_t next = last ? std::max(record.end_ns, end) : lives[i + 1]->start_ns;
    if (next <= end) continue;
    if (!window.Shows(end, next)) continue;
    out += DrawBar(window, {end, next, "gone", "no process", SpanTitle(window, "no process", end, next)});
  }
  return out;
}

std::string StepsOf(const Window& window, const RunRecord& record, Rank rank) {
  std::string out;
  size_t drawn = 0;
  for (const StepSpan& span : record.step_spans) {
    if (span.rank != rank || !window.Shows(span.start_ns, span.end_ns) || ++drawn > kMaxBarsPerLane) continue;
    const std::string name = span.step == span.last_step
                                 ? "step " + span.step.ToString()
                                 : "steps " + span.step.ToString() + " to " + span.last_step.ToString();
    out += DrawBar(window,
                   {span.start_ns, span.end_ns, "step", name, SpanTitle(window, name, span.start_ns, span.end_ns)});
  }
  return out;
}

bool Holds(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::string RankLane(const Window& window, const RunRecord& record, const ReportedIncident& incident, Rank rank,
                     size_t row, const ReportOptions& options) {
  std::string bars = LifeOf(window, record, rank) + StepsOf(window, record, rank);
  size_t drawn = 0;
  for (const RankPhaseSpan& span : incident.rank_phases) {
    if (span.rank != rank || ++drawn > kMaxBarsPerLane) continue;
    const std::string name = PhaseName(span.phase, options);
    bars += DrawBar(window, {span.start_ns, span.end_ns, PhaseClass(span.phase), name,
                             SpanTitle(window, name, span.start_ns, span.end_ns)});
  }
  std::string label = "rank " + rank.ToString();
  if (Holds(incident.ranks, rank)) label += "<em class=\"lost\">fault</em>";
  if (Holds(incident.sources, rank)) label += "<em class=\"gave\">source</em>";
  return Lane(row, label, bars);
}

// The ranks that get a lane: causes and sources before the others, at most as many as fit; in the order of ranks.
std::vector<Rank> LanesOf(const RunRecord& record, const ReportedIncident& incident, const ReportOptions& options) {
  std::set<Rank> chosen;
  const auto choose = [&](Rank rank) {
    const bool exists = rank.value() >= 0 && static_cast<uint32_t>(rank.value()) < record.world_size;
    if (exists && chosen.size() < options.max_timeline_ranks) chosen.insert(rank);
  };
  for (Rank rank : incident.ranks) choose(rank);
  for (Rank rank : incident.sources) choose(rank);
  const uint64_t candidates = std::min<uint64_t>(record.world_size, 2 * options.max_timeline_ranks);
  for (uint64_t rank = 0; rank < candidates; ++rank) choose(Rank(static_cast<int32_t>(rank)));
  return {chosen.begin(), chosen.end()};
}

// Lines across all lanes: the fault, each later attempt, and the instant all ranks were stepping again.
std::string Marks(const Window& window, const ReportedIncident& incident, size_t lanes) {
  std::string out =
      "<div class=\"marks\" style=\"grid-row:1/span " + std::to_string(lanes) + "\" aria-hidden=\"true\">";
  double labelled = window.Percent(incident.fault_ns);
  const auto mark = [&](int64_t at, const std::string& css, const std::string& text) {
    out += "<span class=\"mark " + css + "\" style=\"left:" + Fixed(window.Percent(at), 3) + "%\"><b>" + text +
           "</b></span>";
  };
  mark(incident.fault_ns, "fault", "fault");
  uint32_t attempt = 1;
  for (const ControllerPhaseSpan& span : incident.phases) {
    if (span.attempt <= attempt) continue;
    attempt = span.attempt;
    const double at = window.Percent(span.start_ns);
    const bool crowded = at - labelled < kCrowdedPercent;
    const std::string word = crowded ? "" : "<span class=\"spare\">attempt </span>";
    mark(span.start_ns, "again", at - labelled < kCrowdedPercent / 3 ? "" : word + std::to_string(attempt));
    labelled = at;
  }
  if (incident.resumed_ms) mark(InstantOf(incident, *incident.resumed_ms), "resumed", "resumed");
  return out + "</div>\n";
}

std::string TimeAxis(const Window& window, const std::string& at) {
  std::string out = "<div class=\"who unit\">ms</div><div class=\"ms\" aria-hidden=\"true\">";
  const Axis axis = RoundTicks(0, std::max(window.end_ms(), 1e-3), 6);
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    out += "<span" + std::string(i % 2 == 1 ? " class=\"spare\"" : "") +
           " style=\"left:" + Fixed(window.PercentOfMs(axis.ticks[i]), 2) + "%\">" +
           Fixed(axis.ticks[i], axis.decimals) + "</span>";
  }
  return out + "</div>\n<div class=\"ms-title\" aria-hidden=\"true\">milliseconds since the fault, which was at " +
         EscapeHtml(at) + "</div>\n";
}

std::string Legend(const ReportedIncident& incident, const ReportOptions& options) {
  std::vector<std::string> seen;
  const auto note = [&](const std::string& phase) {
    if (seen.size() < 16 && std::find(seen.begin(), seen.end(), phase) == seen.end()) seen.push_back(phase);
  };
  for (const ControllerPhaseSpan& span : incident.phases) note(span.phase);
  for (const RankPhaseSpan& span : incident.rank_phases) note(span.phase);
  std::stable_sort(seen.begin(), seen.end(),
                   [](const std::string& a, const std::string& b) { return PhaseOrder(a) < PhaseOrder(b); });
  std::string out = "<ul class=\"legend phases\">";
  for (const std::string& phase : seen) {
    out += "<li><i class=\"key " + PhaseClass(phase) + "\"></i>" + PhaseName(phase, options) + "</li>";
  }
  return out + "</ul>\n";
}

}  // namespace

std::string IncidentTimeline(const RunRecord& record, const ReportedIncident& incident, const ReportOptions& options) {
  const Window window(incident);
  const std::vector<Rank> ranks = LanesOf(record, incident, options);
  std::string out = "<div class=\"timeline\" role=\"img\" aria-label=\"Timeline of incident " +
                    std::to_string(incident.id) + " by phase and rank; the table below it has the same spans\">\n";
  out += Marks(window, incident, ranks.size() + 1) + ControllerLane(window, incident, options);
  for (size_t i = 0; i < ranks.size(); ++i) out += RankLane(window, record, incident, ranks[i], i + 2, options);
  out += TimeAxis(window, TimeOfDay(record, incident.fault_ns)) + "</div>\n" + Legend(incident, options);
  if (ranks.size() < record.world_size) {
    out += "<p class=\"note\">" + FormatCount(ranks.size()) + " of " + FormatCount(record.world_size) +
           " ranks are drawn; trace.json has the others.</p>\n";
  }
  return out;
}

std::string IncidentSpanTable(const ReportedIncident& incident, const ReportOptions& options) {
  struct Row {
    int64_t start_ns;
    std::string html;
  };
  std::vector<Row> rows;
  const Window window(incident);
  const auto add = [&](const std::string& who, const std::string& phase, const std::string& attempt, int64_t start,
                       int64_t end) {
    rows.push_back({start, "<tr><th scope=\"row\">" + PhaseName(phase, options) + "</th><td>" + who + "</td><td>" +
                               attempt + "</td><td>" + FormatMs(window.MsAfterFault(start)) + "</td><td>" +
                               FormatMs(MsBetween(start, end)) + "</td></tr>\n"});
  };
  for (const ControllerPhaseSpan& span : incident.phases) {
    add("controller", span.phase, std::to_string(span.attempt), span.start_ns, span.end_ns);
  }
  for (const RankPhaseSpan& span : incident.rank_phases) {
    add("rank " + span.rank.ToString(), span.phase, "", span.start_ns, span.end_ns);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.start_ns < b.start_ns; });
  std::string out =
      "<details class=\"data\"><summary>The phases as a table</summary>\n<div class=\"scroll\" role=\"region\" "
      "aria-label=\"Phases of incident " +
      std::to_string(incident.id) +
      "\" tabindex=\"0\"><table class=\"figures\"><thead><tr><th scope=\"col\">phase</th><th "
      "scope=\"col\">where</th><th "
      "scope=\"col\">attempt</th><th scope=\"col\">began</th><th scope=\"col\">took</th></tr></thead><tbody>\n";
  const size_t shown = std::min(rows.size(), options.max_table_rows);
  for (size_t i = 0; i < shown; ++i) out += rows[i].html;
  out += "</tbody></table></div>";
  if (shown < rows.size()) {
    out += "<p class=\"note\">" + FormatCount(shown) + " of " + FormatCount(rows.size()) +
           " spans; record.json has the others.</p>";
  }
  return out + "</details>\n";
}

}  // namespace kintsugi
