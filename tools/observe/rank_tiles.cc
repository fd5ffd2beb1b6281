#include "tools/observe/rank_tiles.h"

#include <algorithm>

#include "runtime/launcher/run/status_line.h"
#include "tools/report/text.h"

namespace kintsugi::observe {
namespace {

using Life = core::ControllerCore::Life;

// With more ranks than this, those that are well are counted, and the others shown.
constexpr size_t kTilesMax = 1024;

// State is told by words and by the tile's edge, not by its colour alone.
constexpr std::string_view kTilesStyle = R"css(
.tiles{list-style:none;margin:1rem 0 0;padding:0;display:grid;grid-template-columns:repeat(auto-fill,minmax(7.2rem,1fr));gap:.5rem}
.tile{border:1px solid var(--rule);border-left:5px solid var(--rollback);border-radius:4px;padding:.4rem .6rem;background:var(--tint);line-height:1.3;min-width:0}
.tile b{font-weight:600}.tile span{display:block;font-size:.8rem;color:var(--soft);overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.tile.starting{border-left-color:var(--gold);border-left-style:dashed}.tile.dead,.tile.absent{border-left-color:var(--bad);border-left-style:double}
.tile.dead span,.tile.absent span{color:var(--bad)}.tile.late{border-left-color:var(--gold)}
)css";

bool IsWell(const RankStatus& rank) { return rank.life == Life::kReady && !rank.late; }

std::string Doing(const RankStatus& rank) {
  if (rank.life != Life::kReady) return std::string(LifeName(rank.life));
  if (!rank.phase) return "ready";
  return std::string(TrainPhaseName(*rank.phase));
}

// As the tile's title has it: number, host's name, address.
std::string NodeWords(const RankStatus& rank, const std::vector<NodePresence>& hosts) {
  const std::string number = std::to_string(rank.node);
  for (const NodePresence& node : hosts)
    if (node.name == number && !node.host.empty()) return "node " + number + ": " + node.host + ", " + node.address;
  return "node " + number;
}

std::string Tile(const RankStatus& rank, const RunStatus& run) {
  std::string css(LifeName(rank.life));
  std::string words = Doing(rank);
  if (rank.late) {
    css += " late";
    words = FormatMs(ToMilliseconds(*rank.late)) + " late";
  }
  std::string where = "process " + std::to_string(rank.pid);
  if (run.nodes > 1) where += ", " + NodeWords(rank, run.hosts);
  if (rank.respawns > 0) where += ", replaced " + std::to_string(rank.respawns) + "\xC3\x97";
  return "<li class=\"tile " + css + "\" title=\"" + EscapeHtml(where) + "\"><b>" + rank.rank.ToString() +
         "</b><span>" + EscapeHtml(words) + "</span>" +
         (run.nodes > 1 ? "<span>node " + std::to_string(rank.node) + "</span>" : "") + "<span>step " +
         FormatCount(rank.step) + (rank.respawns > 0 ? ", life " + std::to_string(rank.respawns + 1) : "") +
         "</span></li>\n";
}

}  // namespace

std::string_view RankTilesStyle() { return kTilesStyle; }

std::string RankTiles(const RunStatus& run) {
  const bool all = run.ranks.size() <= kTilesMax;
  std::string tiles;
  size_t shown = 0;
  for (const RankStatus& rank : run.ranks)
    if ((all || !IsWell(rank)) && shown < kTilesMax) {
      tiles += Tile(rank, run);
      ++shown;
    }
  std::string out;
  if (!all)
    out = "<p class=\"sub\">" + FormatCount(run.ranks.size() - shown) + " of " + FormatCount(run.ranks.size()) +
          " ranks are not shown; all that are starting, gone or slow come first.</p>\n";
  return out + "<ol class=\"tiles\">\n" + tiles + "</ol>\n";
}

}  // namespace kintsugi::observe
