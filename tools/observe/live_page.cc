#include "tools/observe/live_page.h"

#include <algorithm>
#include <string_view>

#include "runtime/launcher/run/status_line.h"
#include "tools/observe/rank_tiles.h"
#include "tools/report/incidents.h"
#include "tools/report/loss_chart.h"
#include "tools/report/overview.h"
#include "tools/report/page_frame.h"
#include "tools/report/text.h"
#include "tools/report/world_chart.h"

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
.act{display:flex;flex-wrap:wrap;gap:.5rem .7rem;align-items:end;margin:1rem 0 0}
.act[hidden]{display:none}
.act label{font-size:.85rem;color:var(--soft);display:flex;flex-direction:column;gap:.15rem}
.act input{font:inherit;padding:.35rem .55rem;border:1px solid var(--soft);border-radius:4px;background:var(--paper);color:var(--ink);min-width:0;width:11rem}
.act input[type=number]{width:6rem}
.act button{font:inherit;min-height:2.4rem;padding:.35rem .9rem;border:1px solid var(--soft);border-radius:4px;background:var(--tint);color:var(--ink);cursor:pointer}
.act button:disabled{color:var(--soft);cursor:default}
#told{min-height:1.5rem;margin:.6rem 0 0}#told.bad{color:var(--bad)}
)css";

constexpr std::string_view kScript = R"js("use strict";
const link = document.getElementById("link");
const source = new EventSource("events");
const say = (words, css) => { link.textContent = words; link.className = css; };
source.onopen = () => say("live", "live");
source.onerror = () => say("not connected: the run has ended, or its launcher cannot be reached", "lost");
for (const id of ["head", "ranks", "nodes", "time", "world", "loss", "index", "accounts", "ledger"])
  source.addEventListener(id, (event) => {
    const part = document.getElementById(id);
    const open = [...part.querySelectorAll("details")].map((details) => details.open);
    part.innerHTML = event.data;
    part.querySelectorAll("details").forEach((details, at) => { details.open = open[at] === true; });
    if (id === "head") document.title = "Kintsugi: " + part.querySelector("h1").textContent;
  });

// Orders, where the run takes some. The token is kept by this page alone, until it is closed.
const unlock = document.getElementById("unlock"), orders = document.getElementById("orders");
const told = document.getElementById("told");
let token = "";
const tell = (words, bad) => { told.textContent = words; told.className = bad ? "bad" : ""; };
const act = async (action, body) => {
  try {
    const answer = await fetch("actions/" + action, { method: "POST", body: JSON.stringify(body || {}),
      headers: { "Authorization": "Bearer " + token, "Content-Type": "application/json" } });
    const said = await answer.json();
    if (!said.ok) tell("Not done: " + said.error, true);
    return said.ok ? said : null;
  } catch (error) {
    tell("Not done: the launcher cannot be reached, or ended", true);
    return null;
  }
};
const outcomes = {
  save: (said) => "Saved step " + said.step + " in " + said.directory + (said.remark ? ": " + said.remark : ""),
  pause: (said) => "Paused after step " + said.step + ".",
  continue: (said) => said.step === null ? "The pause is taken back." : "Continued after step " + said.step + ".",
  replace: (said) => "Rank " + said.rank + " has a new process (" + said.incident.path + "); all ranks step again after " +
    Math.round(said.incident.down_ms) + " ms.",
};
if (unlock) unlock.addEventListener("submit", async (event) => {
  event.preventDefault();
  token = unlock.elements.token.value.trim();
  if (!await act("check")) return;
  unlock.reset();
  unlock.hidden = true;
  orders.hidden = false;
  tell("This page may give orders until it is closed.");
});
if (orders) orders.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.submitter, action = button.value, rank = orders.elements.rank;
  if (action === "replace" && !/^[0-9]+$/.test(rank.value)) return tell("Which rank is to have a new process?", true);
  tell(button.textContent + ": asked for ...");
  button.disabled = true;
  const said = await act(action, action === "replace" ? { rank: Number(rank.value) } : {});
  button.disabled = false;
  if (said) tell(outcomes[action](said));
});
)js";

// Without --page-token-file none of it is there.
constexpr std::string_view kOrders = R"html(<form id="unlock" class="act" autocomplete="off">
<label>Token<input name="token" type="password" required autocomplete="off" spellcheck="false"></label>
<button>Give orders</button>
</form>
<form id="orders" class="act" hidden novalidate>
<button value="save">Save</button><button value="pause">Pause</button><button value="continue">Continue</button>
<label>Rank<input name="rank" type="number" min="0" inputmode="numeric"></label><button value="replace">Replace</button>
</form>
<p id="told" role="status"></p>
)html";

std::string Section(const char* id, const char* title) {
  return "<section aria-labelledby=\"h-" + std::string(id) + "\"><h2 id=\"h-" + id + "\">" + title + "</h2><div id=\"" +
         id + "\"></div></section>\n";
}

std::string Figure(const std::string& value, const std::string& name, const char* css = "") {
  return "<div" + std::string(css) + "><dt>" + name + "</dt><dd>" + value + "</dd></div>\n";
}

std::string InWords(Duration duration) { return FormatMs(ToMilliseconds(duration)); }

std::string PhaseWords(const RunStatus& run) {
  switch (run.phase) {
    case core::Phase::kRunning:
      if (run.paused_at) return "Paused after step " + FormatCount(run.paused_at->value());
      if (run.pause_asked) return "Pausing, step " + FormatCount(run.step.value());
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

// Of a page that another host reaches, too; one on its own loopback is of use on the leader's host alone.
bool Reaches(const NodeStatus& status) {
  const bool loopback = status.leader_page.starts_with("http://127.") || status.leader_page.starts_with("http://[::1]");
  return status.leader_page.starts_with("http://") && (!loopback || status.leader_address == status.address);
}

std::string WhoLeads(const NodeStatus& status) {
  if (status.leader.empty()) return "The run is shown by the launcher that leads.";
  const std::string who = EscapeHtml(status.leader) + " (" + EscapeHtml(status.leader_address) + ")";
  if (Reaches(status))
    return "The run is shown by <a href=\"" + EscapeHtml(status.leader_page) + "\">the page of " + who +
           "</a>, which leads.";
  return who + " leads, and has " +
         (status.leader_page.empty() ? "no page: give --page to every node."
                                     : "a page on its own loopback alone: give --page an address that others reach.");
}

// Number, host's name, address and state of each: what an operator looks for when one is away.
std::string Nodes(const RunStatus& run) {
  if (run.nodes <= 1) return "";
  std::string rows;
  for (const NodePresence& node : run.hosts)
    rows += "<tr><td>" + EscapeHtml(node.name) + "</td><td>" + EscapeHtml(node.host) + "</td><td>" +
            EscapeHtml(node.address) + "</td><td>" + (node.here ? (node.spare ? "a spare" : "here") : "<b>away</b>") +
            "</td></tr>\n";
  return "<table><thead><tr><th>node</th><th>host</th><th>address</th><th></th></tr></thead><tbody>\n" + rows +
         "</tbody></table>\n";
}

std::string Head(const NodeStatus& status) {
  const std::string lead =
      "<p class=\"lead\">" + EscapeHtml(status.job) + ", node " + std::to_string(status.node) + "</p>";
  if (!status.run)
    return "<h1>Another node leads</h1>" + lead + "<p>" +
           (status.hears_leader ? "This one obeys it, in term " + std::to_string(status.term.number)
                                : "This one does not hear it") +
           ", and has " + Counted(static_cast<uint64_t>(status.processes), "process", "processes") + " of ranks. " +
           WhoLeads(status) + "</p>";
  const RunStatus& run = *status.run;
  const auto ready =
      static_cast<uint64_t>(std::count_if(run.ranks.begin(), run.ranks.end(), [](const RankStatus& rank) {
        return rank.life == core::ControllerCore::Life::kReady;
      }));
  std::string out = "<h1>" + PhaseWords(run) + "</h1>" + lead + "<dl class=\"key-figures\">\n";
  out += Figure(Fixed(100 * run.time.goodput(), 1) + "<small>%</small>", "of the time was useful (goodput)",
                " class=\"headline\"");
  out += Figure(FormatLoss(run.loss), "loss");
  out += Figure(FormatCount(ready) + "<small>of " + FormatCount(run.ranks.size()) + "</small>", "ranks ready",
                ready < run.ranks.size() ? " class=\"bad\"" : "");
  if (run.world_size != run.places || !run.worlds.empty())
    out += Figure(FormatCount(static_cast<uint64_t>(run.world_size)) + "<small>of " +
                      FormatCount(static_cast<uint64_t>(run.places)) + "</small>",
                  "ranks take part");
  out += Figure(FormatCount(run.incidents), run.incidents == 1 ? "incident" : "incidents");
  out += Figure(run.saves.newest ? InWords(run.at - run.saves.newest->known_at) : "none",
                run.saves.newest
                    ? "age of the checkpoint of step " + FormatCount(run.saves.newest->checkpoint.step.value())
                    : "checkpoint");
  out += Figure(FormatCount(run.term.number), "term of the leader");
  out += "</dl>\n";
  if (run.hang)
    out +=
        "<p>" + InWords(run.at - run.hang->at) + " ago ranks waited: " + EscapeHtml(run.hang->blame.text) + ".</p>\n";
  return out;
}

}  // namespace

std::string LivePage(bool takes_orders) {
  return PageHead("Kintsugi", std::string(kStyle) + std::string(RankTilesStyle()),
                  "script-src 'self'; connect-src 'self'") +
         "<body>\n<a class=\"skip\" href=\"#main\">Skip to the run</a>\n<header>\n" + Masthead() +
         "<p class=\"state\"><span id=\"link\" role=\"status\">connecting</span></p><noscript><p>This page is filled "
         "by a "
         "script.</p></noscript>\n<div id=\"head\"></div>" +
         std::string(takes_orders ? kOrders : "") + "</header>\n<main id=\"main\" tabindex=\"-1\">\n" +
         Section("ranks", "Ranks") + Section("nodes", "Nodes") + Section("time", "Where the time went") +
         Section("world", "Ranks that took part") + Section("loss", "Loss") + Section("index", "Incidents") +
         Section("accounts", "How each was mended") + Section("ledger", "What was lost, and why that rung") +
         "</main>\n<footer><p>Nothing on this page comes from anywhere but the launcher.</p></footer>\n"
         "<script src=\"page.js\"></script>\n</body>\n</html>\n";
}

std::string LivePageScript() { return std::string(kScript); }

std::map<std::string, std::string> LivePageParts(const NodeStatus& status, const RunRecord* record) {
  std::map<std::string, std::string> parts{{"head", Head(status)}, {"ranks", ""},    {"nodes", ""},
                                           {"time", ""},           {"world", ""},    {"loss", ""},
                                           {"index", ""},          {"accounts", ""}, {"ledger", ""}};
  if (!status.run || record == nullptr) return parts;
  parts["ranks"] = RankTiles(*status.run);
  parts["nodes"] = Nodes(*status.run);
  parts["time"] = TimeShares(*record);
  const ReportOptions options;
  parts["loss"] = LossChart(*record, nullptr, nullptr, options);
  if (record->incidents.empty() && record->worlds.empty()) return parts;
  RunRecord newest = *record;
  auto& incidents = newest.incidents;
  if (incidents.size() > kIncidentsShown)
    incidents.erase(incidents.begin(), incidents.end() - static_cast<ptrdiff_t>(kIncidentsShown));
  parts["world"] = WorldChart(newest, options);
  if (incidents.empty()) return parts;
  parts["index"] = IncidentIndex(newest, options);
  parts["accounts"] = IncidentAccounts(newest, options);
  parts["ledger"] = IncidentTable(newest, options);
  return parts;
}

}  // namespace kintsugi::observe
