#include "tools/report/incidents.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "tools/report/text.h"
#include "tools/report/timeline.h"
#include "tools/report/words.h"

namespace kintsugi {
namespace {

std::string Safe(std::string_view text, const ReportOptions& options) {
  return EscapeHtml(Elide(text, options.max_text_bytes));
}

std::string StreamWords(const ReportedIncident& incident) {
  if (incident.bytes_streamed == 0) return "nothing";
  std::string out = FormatBytes(incident.bytes_streamed);
  if (incident.stream_gbps) out += " at " + Fixed(*incident.stream_gbps, 2) + "\xC2\xA0GB/s";
  if (!incident.sources.empty()) out += ", from " + RankWords(incident.sources);
  return out;
}

std::string ResumeWords(const ReportedIncident& incident) {
  if (!incident.resumed_ms) return "not resumed";
  return FormatMs(incident.resumed_ms) + ", from step " + FormatCount(incident.step.value());
}

std::array<std::pair<const char*, std::optional<double>>, 5> Milestones(const ReportedIncident& incident) {
  return {{{"detected", incident.detected_ms},
           {"parked", incident.parked_ms},
           {"rebuilt", incident.rebuilt_ms},
           {"repaired", incident.repaired_ms},
           {"resumed", incident.resumed_ms}}};
}

std::string MilestoneList(const ReportedIncident& incident) {
  std::string out = "<ol class=\"milestones\" aria-label=\"Time since the fault\">";
  for (const auto& [name, ms] : Milestones(incident)) {
    out += std::string("<li") + (ms ? "" : " class=\"missed\"") + "><b>" + FormatMs(ms) + "</b><span>" + name +
           "</span></li>";
  }
  return out + "</ol>\n";
}

std::string Heading(const ReportedIncident& incident, const ReportOptions& options) {
  const std::string id = std::to_string(incident.id);
  std::string title = Safe(FaultWords(incident), options);
  if (const std::string place = PlaceWords(incident); !place.empty()) title += " " + Safe(place, options);
  return "<h3 id=\"incident-" + id + "\" tabindex=\"-1\"><span class=\"ring\" aria-hidden=\"true\">" + id +
         "</span><span class=\"sr\">Incident " + id + ": </span>" + title + "</h3>\n";
}

std::string Account(const ReportedIncident& incident, const ReportOptions& options) {
  std::string out =
      "<p><b class=\"rung\">" + Safe(incident.path, options) + "</b> " + Safe(RungWords(incident.path), options) + ".";
  if (incident.bytes_streamed > 0) out += " " + StreamWords(incident) + ".";
  if (incident.resumed_ms) out += " Training went on from step " + FormatCount(incident.step.value()) + ".";
  if (incident.attempts > 1) {
    out += " It took " + std::to_string(incident.attempts) + " attempts: more went wrong during the repair.";
  }
  return out + "</p>\n";
}

// A labelled cell; the label shows where the table turns into cards.
std::string Cell(const char* label, const std::string& html) {
  return "<td role=\"cell\" data-label=\"" + std::string(label) + "\"><div>" + html + "</div></td>";
}

std::string WhyList(const ReportedIncident& incident, const ReportOptions& options) {
  std::string out = "<p class=\"chosen\"><b class=\"rung\">" + Safe(incident.path, options) + "</b></p>";
  if (incident.reasons.empty()) return out;
  out += "<ul class=\"why\">";
  size_t shown = 0;
  for (const ToldReason& reason : incident.reasons) {
    if (++shown > 20) break;
    const bool taken = reason.rung == incident.path;
    out += std::string("<li") + (taken ? " class=\"taken\"" : "") + "><span>" + Safe(reason.rung, options) +
           (taken ? "" : "<span class=\"sr\"> refused</span>") + "</span><div>" + Safe(reason.reason, options) +
           "</div></li>";
  }
  return out + "</ul>";
}

std::string LostCell(const ReportedIncident& incident, const ReportOptions& options) {
  std::string out = Safe(FaultWords(incident), options);
  if (const std::string place = PlaceWords(incident); !place.empty()) out += " " + Safe(place, options);
  if (!incident.cause.empty()) out += "<p class=\"cause\">" + Safe(incident.cause, options) + "</p>";
  return out;
}

std::string Row(const ReportedIncident& incident, const ReportOptions& options) {
  const std::string id = std::to_string(incident.id);
  std::string detected = FormatMs(incident.detected_ms);
  if (!incident.signal.empty()) detected += "<small>by " + Safe(incident.signal, options) + "</small>";
  std::string resumed = ResumeWords(incident);
  if (incident.attempts > 1) resumed += "<small>" + std::to_string(incident.attempts) + " attempts</small>";
  return "<tr role=\"row\" id=\"row-" + id + "\"><th role=\"rowheader\" scope=\"row\"><span class=\"ring\">" + id +
         "</span></th>" + Cell("Lost", LostCell(incident, options)) + Cell("Detected", detected) +
         Cell("Streamed", StreamWords(incident)) + Cell("Resumed", resumed) +
         Cell("Rung, and why", WhyList(incident, options)) + "</tr>\n";
}

}  // namespace

std::string IncidentAccounts(const RunRecord& record, const ReportOptions& options) {
  std::string out;
  const size_t shown = std::min(record.incidents.size(), options.max_incident_figures);
  for (size_t i = 0; i < shown; ++i) {
    const ReportedIncident& incident = record.incidents[i];
    out += "<article class=\"incident\" aria-labelledby=\"incident-" + std::to_string(incident.id) + "\">\n" +
           Heading(incident, options) + Account(incident, options) + MilestoneList(incident) +
           IncidentTimeline(record, incident, options) + IncidentSpanTable(incident, options) + "</article>\n";
  }
  if (shown < record.incidents.size()) {
    out += "<p class=\"note\">" + FormatCount(shown) + " of " + FormatCount(record.incidents.size()) +
           " incidents are drawn; the table below goes on.</p>\n";
  }
  return out;
}

std::string IncidentTable(const RunRecord& record, const ReportOptions& options) {
  std::string out =
      "<table class=\"ledger\" role=\"table\"><caption class=\"sr\">What was lost, detected, streamed and resumed, and "
      "why "
      "that rung</caption>\n<thead role=\"rowgroup\"><tr role=\"row\"><th role=\"columnheader\" scope=\"col\"><span "
      "class=\"sr\">incident</span></th>";
  for (const char* name : {"Lost", "Detected", "Streamed", "Resumed", "Rung, and why"}) {
    out += "<th role=\"columnheader\" scope=\"col\">" + std::string(name) + "</th>";
  }
  out += "</tr></thead>\n<tbody role=\"rowgroup\">\n";
  const size_t shown = std::min(record.incidents.size(), options.max_table_rows);
  for (size_t i = 0; i < shown; ++i) out += Row(record.incidents[i], options);
  out += "</tbody></table>\n";
  if (shown < record.incidents.size()) {
    out += "<p class=\"note\">" + FormatCount(shown) + " of " + FormatCount(record.incidents.size()) +
           " incidents; summary.json has every one.</p>\n";
  }
  return out;
}

}  // namespace kintsugi
