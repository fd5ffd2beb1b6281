#include "tools/observe/live_page.h"

#include <algorithm>
#include <string_view>

#include "runtime/launcher/status_line.h"
#include "tools/observe/rank_tiles.h"
#include "tools/report/incidents.h"
#include "tools/report/loss_chart.h"
#include "tools/report/overview.h"
#include "tools/report/page_frame.h"
#include "tools/report/text.h"

namespace kintsugi::observe {
namespace {

// So many of the newest are told of; the report, when the run is over, has all.
constexpr size_t kIncidentsShown = 20;

constexpr std::string_view kStyle = R"css(
.state{display:flex;flex-wrap:wrap;gap:.4rem 1rem;align-items:baseline;margin:1rem 0 0}
#link{font-size:.9rem;color:var(--soft)}#link::before{content:"";display:inline-block;width:.6rem;height:.6rem;border-radius:50%;margin-right:.45rem;background:var(--soft)}
#link.live::before{background:var(--rollback)}#link.lost{color:var(--bad)}#link.lost::before{background:var(--bad)}
#head h1{margin-top:clamp(1rem,3vw,2rem)}
section:has(>div:empty){display:none}
)css";

constexpr std::string_view kScript = R"js("use strict";
const link = document.getElementById("link");
const source = new EventSource("events");
const say = (words, css) => { link.textContent = words; link.className = css; };
source.onopen = () => say("live", "live");
source.onerror = () => say("not connected: the run has ended, or its launcher cannot be reached", "lost");
for (const id of ["head", "ranks", "time", "loss", "index", "accounts", "ledger"])
  source.addEventListener(id, (event) => {
    const part = document.getElementById(id);
    const open = [...part.querySelectorAll("details")].map((details) => details.open);
    part.innerHTML = event.data;
    part.querySelectorAll("details").forEach((details, at) => { details.open = open[at] === true; });
    if (id === "head") document.title = "Kintsugi: " + part.querySelector("h1").textContent;
  });
)js";

std::string Section(const char* id, const char* title) {
  return "<section aria-labelledby=\"h-" + std::string(id) + "\"><h2 id=\"h-" + id + "\">" + title + "</h2><div id=\"" +
         id + "\"></div></section>\n";
}

std::string Figure(const std::string& value, const std::string& name, const char* css = "") {
  return "<div" + std::string(css) + "><dt>" + name + "</dt><dd>" + value + "</dd></div>\n";
}

std::string InWords(Duration duration) { return FormatMs(ToMilliseconds(duration)); }

std::string PhaseWords(const RunSight& run) {
  switch (run.phase) {
    case core::Phase::kRunning:
      return "Training, step " + FormatCount(run.step.value());
    case core::Phase::kEnded:
      return "Ended at step " + FormatCount(run.step.value());
    case core::Phase::kDump:
    case core::Phase::kRename:
      return "Saving, to leave";
    default:
      return std::string(run.incidents == 0 ? "Starting: " : "Recovering: ") + std::string(core::PhaseName(run.phase));
  }
}

std::string Head(const NodeSight& sight) {
  const std::string lead =
      "<p class=\"lead\">" + EscapeHtml(sight.job) + ", node " + std::to_string(sight.node) + "</p>";
  if (!sight.run)
    return "<h1>Another node leads</h1>" + lead + "<p>" +
           (sight.hears_leader ? "This one obeys it, in term " + std::to_string(sight.term.number)
                               : "This one does not hear it") +
           ", and has " + Counted(static_cast<uint64_t>(sight.processes), "process", "processes") +
           " of ranks. The run is shown by the launcher that leads.</p>";
  const RunSight& run = *sight.run;
  const auto ready = static_cast<uint64_t>(std::count_if(run.ranks.begin(), run.ranks.end(), [](const RankSight& rank) {
    return rank.life == core::ControllerCore::Life::kReady;
  }));
  std::string out = "<h1>" + PhaseWords(run) + "</h1>" + lead + "<dl class=\"key-figures\">\n";
  out += Figure(Fixed(100 * run.time.goodput(), 1) + "<small>%</small>", "of the time was useful (goodput)",
                " class=\"headline\"");
  out += Figure(FormatLoss(run.loss), "loss");
  out += Figure(FormatCount(ready) + "<small>of " + FormatCount(run.ranks.size()) + "</small>", "ranks ready",
                ready < run.ranks.size() ? " class=\"bad\"" : "");
  out += Figure(FormatCount(run.incidents), run.incidents == 1 ? "incident" : "incidents");
  out += Figure(run.saves.newest ? InWords(run.at - run.saves.newest->known_at) : "none",
                run.saves.newest
                    ? "age of the checkpoint of step " + FormatCount(run.saves.newest->checkpoint.step.value())
                    : "checkpoint");
  out += Figure(FormatCount(run.term.number), "term of the leader");
  return out + "</dl>\n";
}

}  // namespace

std::string LivePage() {
  return PageHead("Kintsugi", std::string(kStyle) + std::string(RankTilesStyle()),
                  "script-src 'self'; connect-src 'self'") +
         "<body>\n<a class=\"skip\" href=\"#main\">Skip to the run</a>\n<header>\n" + Masthead() +
         "<p class=\"state\"><span id=\"link\" role=\"status\">connecting</span></p><noscript><p>This page is filled "
         "by a "
         "script.</p></noscript>\n<div id=\"head\"></div></header>\n<main id=\"main\" tabindex=\"-1\">\n" +
         Section("ranks", "Ranks") + Section("time", "Where the time went") + Section("loss", "Loss") +
         Section("index", "Incidents") + Section("accounts", "How each was mended") +
         Section("ledger", "What was lost, and why that rung") +
         "</main>\n<footer><p>Nothing on this page comes from anywhere but the launcher.</p></footer>\n"
         "<script src=\"page.js\"></script>\n</body>\n</html>\n";
}

std::string LivePageScript() { return std::string(kScript); }

std::map<std::string, std::string> LivePageParts(const NodeSight& sight, const RunRecord* record) {
  std::map<std::string, std::string> parts{{"head", Head(sight)}, {"ranks", ""},    {"time", ""},  {"loss", ""},
                                           {"index", ""},         {"accounts", ""}, {"ledger", ""}};
  if (!sight.run || record == nullptr) return parts;
  parts["ranks"] = RankTiles(*sight.run);
  parts["time"] = TimeShares(*record);
  const ReportOptions options;
  parts["loss"] = LossChart(*record, nullptr, nullptr, options);
  if (record->incidents.empty()) return parts;
  RunRecord newest = *record;
  auto& incidents = newest.incidents;
  if (incidents.size() > kIncidentsShown)
    incidents.erase(incidents.begin(), incidents.end() - static_cast<ptrdiff_t>(kIncidentsShown));
  parts["index"] = IncidentIndex(newest, options);
  parts["accounts"] = IncidentAccounts(newest, options);
  parts["ledger"] = IncidentTable(newest, options);
  return parts;
}

}  // namespace kintsugi::observe
