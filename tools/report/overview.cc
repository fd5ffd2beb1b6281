#include "tools/report/overview.h"

#include <algorithm>
#include <array>

#include "tools/report/text.h"
#include "tools/report/words.h"

namespace kintsugi {
namespace {

struct Share {
  const char* name;
  const char* css;
  double ns;
  const char* meaning;
};

std::array<Share, 6> SharesOf(const RunRecord& record) {
  const TimeSpent& time = *record.time;
  const auto bounded = [&](int64_t ns) { return static_cast<double>(std::clamp<int64_t>(ns, 0, record.end_ns)); };
  const double useful = record.Goodput().value_or(0) * static_cast<double>(record.end_ns);
  return {{{"useful", "s-useful", useful, "steps that count"},
           {"start", "s-start", bounded(time.starting_ns), "until all ranks were in their loops"},
           {"standing still", "s-down", bounded(time.down_ns), "from each fault until all ranks stepped again"},
           {"done again", "s-redone", bounded(time.redone_ns), "steps, or parts of one, that were thrown away"},
           {"saving", "s-saving", bounded(time.saving_ns), "all ranks stood still for a save, or to compare replicas"},
           {"paused", "s-paused", bounded(time.paused_ns), "all ranks stood still because an operator asked for it"}}};
}

std::string Milliseconds(double ns) { return FormatMs(ns / 1e6); }

std::string IndexRow(const RunRecord& record, const ReportedIncident& incident, bool drawn,
                     const ReportOptions& options) {
  const std::string id = std::to_string(incident.id);
  std::string what = FaultWords(incident);
  if (const std::string place = PlaceWords(incident); !place.empty()) what += " " + place;
  std::string html = "<tr><th scope=\"row\"><a href=\"#" + std::string(drawn ? "incident-" : "row-") + id + "\">" + id +
                     "</a></th><td>" + EscapeHtml(TimeOfDay(record, incident.fault_ns)) + "</td><td class=\"what\">" +
                     EscapeHtml(Elide(what, options.max_text_bytes)) + "</td><td>" +
                     EscapeHtml(Elide(incident.path.empty() ? "none" : incident.path, options.max_text_bytes)) +
                     "</td><td>" + FormatMs(incident.down_ms) + (incident.resumed_ms ? "" : " (not resumed)") +
                     "</td><td>" + FormatCount(incident.steps_lost) + "</td></tr>\n";
  return html;
}

}  // namespace

std::string TimeShares(const RunRecord& record) {
  if (!record.time || record.end_ns <= 0) return "";
  std::string bar, legend;
  for (const Share& share : SharesOf(record)) {
    const double percent = 100 * share.ns / static_cast<double>(record.end_ns);
    const std::string words =
        std::string(share.name) + " " + Milliseconds(share.ns) + ", " + Fixed(percent, 1) + "\xC2\xA0%";
    bar += "<span class=\"" + std::string(share.css) + "\" style=\"width:" + Fixed(percent, 3) + "%\" title=\"" +
           words + "\"></span>";
    legend += "<li><i class=\"key " + std::string(share.css) + "\"></i><div><b>" + share.name + " " +
              Milliseconds(share.ns) + "</b> " + Fixed(percent, 1) + "\xC2\xA0%<small>" + share.meaning +
              "</small></div></li>";
  }
  return "<div class=\"shares\" aria-hidden=\"true\">" + bar + "</div>\n<ul class=\"legend share-words\">" + legend +
         "</ul>\n";
}

std::string IncidentIndex(const RunRecord& record, const ReportOptions& options) {
  if (record.incidents.empty()) return "";
  std::string out =
      "<div class=\"scroll wide\" role=\"region\" aria-label=\"Incidents\" tabindex=\"0\"><table class=\"figures "
      "index\">"
      "<thead><tr>";
  for (const char* name : {"incident", "time", "what happened", "rung", "standing still", "steps lost"})
    out += "<th scope=\"col\">" + std::string(name) + "</th>";
  out += "</tr></thead><tbody>\n";
  const size_t shown = std::min(record.incidents.size(), options.max_table_rows);
  for (size_t i = 0; i < shown; ++i)
    out += IndexRow(record, record.incidents[i], i < options.max_incident_figures, options);
  out += "</tbody></table></div>\n";
  if (shown < record.incidents.size())
    out += "<p class=\"note\">" + FormatCount(shown) + " of " + FormatCount(record.incidents.size()) +
           " incidents; summary.json has every one.</p>\n";
  return out;
}

}  // namespace kintsugi
