#include "tools/report/page.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/report/compare.h"
#include "tools/report/incidents.h"
#include "tools/report/loss_chart.h"
#include "tools/report/overview.h"
#include "tools/report/page_frame.h"
#include "tools/report/text.h"
#include "tools/report/words.h"
#include "tools/report/world_chart.h"

namespace kintsugi {
namespace {

std::string Figure(const std::string& value, const std::string& name, const char* css = "") {
  return "<div" + std::string(css) + "><dt>" + name + "</dt><dd>" + value + "</dd></div>\n";
}

std::string WithSmallUnit(std::string text) {
  constexpr std::string_view kHardSpace = "\xC2\xA0";
  const size_t space = text.rfind(kHardSpace);
  if (space == std::string::npos) return text;
  return text.substr(0, space) + "<small>" + text.substr(space + kHardSpace.size()) + "</small>";
}

std::string KeyFigures(const RunRecord& record, const RunComparison* comparison) {
  uint64_t streamed = 0;
  std::optional<double> slowest = 0.0;
  for (const ReportedIncident& incident : record.incidents) {
    streamed += incident.bytes_streamed;
    if (!incident.resumed_ms) slowest.reset();
    if (slowest) slowest = std::max(*slowest, *incident.resumed_ms);
  }
  std::string out = "<dl class=\"key-figures\">\n";
  if (const std::optional<double> goodput = record.Goodput())
    out += Figure(Fixed(100 * *goodput, 1) + "<small>%</small>", "of the time was useful (goodput)",
                  " class=\"headline\"");
  out += Figure(FormatCount(record.steps), "steps committed");
  out += Figure(FormatLoss(record.final_loss), "final loss");
  const uint64_t incidents = record.incidents_before + record.incidents.size();
  out += Figure(FormatCount(incidents), incidents == 1 ? "incident" : "incidents");
  if (!record.worlds.empty())
    out += Figure(FormatCount(record.worlds.back().ranks) + "<small>of " + FormatCount(record.world_size) + "</small>",
                  "ranks at the end");
  if (!record.incidents.empty()) {
    out += Figure(slowest ? WithSmallUnit(FormatMs(slowest)) : "none", "fault to all stepping");
    out += Figure(WithSmallUnit(FormatBytes(streamed)), "streamed");
  }
  if (comparison != nullptr) {
    out += Figure(comparison->identical ? "identical" : "different",
                  comparison->identical ? "to the undisturbed run" : "from the undisturbed run",
                  comparison->identical ? " class=\"good\"" : " class=\"bad\"");
  }
  return out + "</dl>\n";
}

// Each word keeps together, so that a line does not break inside an option's dashes.
std::string CommandLine(const RunRecord& record, const ReportOptions& options) {
  std::string out;
  size_t shown = 0;
  for (const std::string& word : record.launcher_line.empty() ? record.command_line : record.launcher_line) {
    if (shown >= options.max_text_bytes) return out + " \xE2\x80\xA6";
    out += (out.empty() ? "<span>" : " <span>") + EscapeHtml(Elide(word, options.max_text_bytes - shown)) + "</span>";
    shown += word.size() + 1;
  }
  return out;
}

std::string HostWords(const RunRecord& record, const ReportOptions& options) {
  std::string out = Elide(record.host.hostname, options.max_text_bytes);
  const auto append = [&](const std::string& part) {
    if (!part.empty()) out += (out.empty() ? "" : ", ") + Elide(part, options.max_text_bytes);
  };
  append(record.host.processor);
  if (record.host.cores > 0) append(Counted(record.host.cores, "core", "cores"));
  if (record.host.memory_bytes > 0) append(FormatBytes(record.host.memory_bytes));
  append(record.host.system);
  return EscapeHtml(out);
}

std::string HostList(const RunRecord& record, const ReportOptions& options) {
  std::string out;
  const size_t shown = std::min(record.hosts.size(), options.max_table_rows);
  for (size_t i = 0; i < shown; ++i)
    out += (i == 0 ? "" : "<br/>") + EscapeHtml(Elide(record.hosts[i], options.max_text_bytes));
  if (shown < record.hosts.size()) out += "<br/>and " + FormatCount(record.hosts.size() - shown) + " more";
  return out;
}

std::string SaveWords(const RunRecord& record, const ReportOptions& options) {
  const SaveSummary& saves = record.saves;
  std::string out = FormatCount(saves.made) + " made";
  if (saves.newest) out += ", the newest of step " + FormatCount(saves.newest->value());
  if (saves.failed > 0)
    out += "; " + FormatCount(saves.failed) +
           (saves.last_failure.empty()
                ? std::string(" failed")  // under a leader before, whose log tells of it
                : " failed, the last one: " + EscapeHtml(Elide(saves.last_failure, options.max_text_bytes)));
  return out;
}

std::string NotStruck(const RunRecord& record, const ReportOptions& options) {
  std::string out;
  for (const std::string& spec : record.not_struck) out += (out.empty() ? "" : ", ") + spec;
  return EscapeHtml(Elide(out, options.max_text_bytes));
}

class FactList {
 public:
  void Add(const char* name, const std::string& html, const char* css = "") {
    if (!html.empty()) out_ += "<div><dt>" + std::string(name) + "</dt><dd" + css + ">" + html + "</dd></div>\n";
  }
  std::string Take() { return "<dl class=\"facts\">\n" + out_ + "</dl>\n"; }

 private:
  std::string out_;
};

std::string Facts(const RunRecord& record, const RunRecord* reference, const ReportOptions& options) {
  const auto text = [&](const std::string& value) { return EscapeHtml(Elide(value, options.max_text_bytes)); };
  FactList facts;
  facts.Add("Command", CommandLine(record, options), " class=\"mono words\"");
  facts.Add("Started", text(record.started_at));
  if (record.end_ns > 0)
    facts.Add("Ended",
              text(TimeOfDay(record, record.end_ns)) + ", after " + FormatMs(static_cast<double>(record.end_ns) / 1e6));
  facts.Add(record.hosts.empty() ? "Host" : "Launcher's host", HostWords(record, options));
  facts.Add("Hosts", HostList(record, options));
  facts.Add(record.worlds.empty() ? "Ranks" : "Places for ranks", FormatCount(record.world_size));
  facts.Add("Checkpoints", SaveWords(record, options));
  facts.Add("Samples consumed", FormatCount(record.samples_consumed));
  facts.Add("Samples digest", text(record.samples_digest), " class=\"mono\"");
  facts.Add("Final digest", text(record.final_digest), " class=\"mono\"");
  if (reference != nullptr) facts.Add("Undisturbed digest", text(reference->final_digest), " class=\"mono\"");
  facts.Add("Exit code", std::to_string(record.exit));
  facts.Add("Ended with", text(record.reason));
  facts.Add("Faults that never struck", NotStruck(record, options));
  return facts.Take();
}

std::string Overview(const RunRecord& record, const ReportOptions& options) {
  std::string out;
  if (const std::string shares = TimeShares(record); !shares.empty())
    out +=
        "<section aria-labelledby=\"h-time\">\n<h2 id=\"h-time\">Where the time went</h2>\n" + shares + "</section>\n";
  if (const std::string worlds = WorldChart(record, options); !worlds.empty())
    out += "<section aria-labelledby=\"h-world\">\n<h2 id=\"h-world\">Ranks that took part</h2>\n" + worlds +
           "</section>\n";
  if (const std::string index = IncidentIndex(record, options); !index.empty())
    out += "<section aria-labelledby=\"h-index\">\n<h2 id=\"h-index\">Incidents</h2>\n" + index + "</section>\n";
  return out;
}

std::string IncidentSections(const RunRecord& record, const ReportOptions& options) {
  const std::string before = record.incidents_before == 0
                                 ? ""
                                 : "<p class=\"note\">" + FormatCount(record.incidents_before) +
                                       " more came under leaders before, and no more is known of them here: kintsugi "
                                       "replay tells of them, from the journals "
                                       "beside this page and on their nodes.</p>\n";
  if (record.incidents.empty()) return before;
  return before +
         "<section aria-labelledby=\"h-incidents\">\n<h2 id=\"h-incidents\">How each was mended</h2>\n<p "
         "class=\"sub\">Milliseconds "
         "since the instant of the fault, until the last rank got there.</p>\n" +
         IncidentAccounts(record, options) +
         "</section>\n<section aria-labelledby=\"h-ledger\">\n<h2 id=\"h-ledger\">What was lost, and why that "
         "rung</h2>\n<p "
         "class=\"sub\">The recovery ladder takes the cheapest rung whose conditions hold; the others say why "
         "not.</p>\n" +
         IncidentTable(record, options) + "</section>\n";
}

}  // namespace

std::string IndexHtml(const RunRecord& faulted, const RunRecord* reference, const ReportOptions& options) {
  std::optional<RunComparison> found;
  if (reference != nullptr) found = Compare(faulted, *reference);
  const RunComparison* comparison = found ? &*found : nullptr;
  const std::string verdict = EscapeHtml(VerdictWords(faulted, comparison));
  std::string out =
      PageHead("Kintsugi: " + verdict) + "<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n<header>\n";
  out += Masthead() + "<h1>" + verdict + "</h1>\n<p class=\"lead\">" +
         EscapeHtml(Elide(LeadWords(faulted, comparison), 4 * options.max_text_bytes)) + "</p>\n" +
         KeyFigures(faulted, comparison) + "</header>\n<main id=\"main\" tabindex=\"-1\">\n";
  out += Overview(faulted, options);
  out += "<section aria-labelledby=\"h-loss\">\n<h2 id=\"h-loss\">Loss</h2>\n" +
         LossChart(faulted, reference, comparison, options) + "</section>\n";
  out += IncidentSections(faulted, options);
  out += "<section aria-labelledby=\"h-run\">\n<h2 id=\"h-run\">The run</h2>\n" + Facts(faulted, reference, options) +
         "</section>\n</main>\n<footer><p>Beside this page: <a href=\"summary.json\">summary.json</a> for programs, <a "
         "href=\"trace.json\">trace.json</a> for Perfetto, <a href=\"record.json\">record.json</a> with everything.</p>"
         "</footer>\n</body>\n</html>\n";
  return out;
}

}  // namespace kintsugi
