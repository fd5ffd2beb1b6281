#include "tools/cli/coverage_picture.h"

#include <algorithm>
#include <cmath>

#include "tools/report/svg.h"
#include "tools/report/text.h"

namespace kintsugi::cli {
namespace {

using sim::FaultType;
using sim::Phase;

constexpr double kMargin = 28, kNames = 150, kTop = 112, kCellWidth = 68, kCellHeight = 19, kGap = 2, kFoot = 44;
constexpr int kColumns = static_cast<int>(Phase::kEnded);  // nothing strikes a run that has ended
constexpr int kShades = 7;

// A count keeps a contrast of more than 4.5 to 1 on every shade, in both schemes.
constexpr const char* kStyle = R"css(<style>
svg{color-scheme:light dark;--paper:#fbfaf7;--ink:#211e1a;--soft:#655f55;--empty:#efece5}
text{font:12px "Inter","Segoe UI",system-ui,sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}
.h{font-size:21px}.s{fill:var(--soft);font-size:13px}.n{text-anchor:end}.c{text-anchor:middle;font-size:11px}
.p{fill:var(--paper)}.e{fill:var(--empty)}.z{fill:var(--soft);opacity:.55}
.s1{fill:#e3ecf1}.s2{fill:#cfe0e9}.s3{fill:#b7d2df}.s4{fill:#9bc1d3}.s5{fill:#7daec4}.s6{fill:#5f98b2}.s7{fill:#3f7d99}
.i7{fill:#fff}
@media (prefers-color-scheme:dark){svg{--paper:#141518;--ink:#ece7dc;--soft:#a8a195;--empty:#1d1f23}
.s1{fill:#1c2b33}.s2{fill:#203640}.s3{fill:#25424f}.s4{fill:#2a4f5f}.s5{fill:#2f5d71}.s6{fill:#356b82}.s7{fill:#3b7994}}
</style>
)css";

uint64_t CountOf(const sim::Campaign& campaign, int phase, int type) {
  const auto row = campaign.coverage().find(static_cast<Phase>(phase));
  if (row == campaign.coverage().end()) return 0;
  const auto cell = row->second.find(static_cast<FaultType>(type));
  return cell == row->second.end() ? 0 : cell->second;
}

// 1 for a single one, kShades for the largest.
int ShadeOf(uint64_t count, uint64_t largest) {
  if (largest <= 1) return 1;
  const double share = std::log(static_cast<double>(count)) / std::log(static_cast<double>(largest));
  return 1 + std::clamp(static_cast<int>(share * (kShades - 1) + 0.5), 0, kShades - 1);
}

std::string Cell(double x, double y, uint64_t count, uint64_t largest) {
  const std::string shade = std::to_string(count == 0 ? 0 : ShadeOf(count, largest));
  return SvgRectangle(x, y, kCellWidth - kGap, kCellHeight - kGap, count == 0 ? "e" : "s" + shade) +
         SvgText(x + (kCellWidth - kGap) / 2, y + kCellHeight / 2 + 3, count == 0 ? "c z" : "c i" + shade,
                 count == 0 ? "\u00b7" : FormatCount(count));
}

}  // namespace

std::string DrawCoverage(const sim::Campaign& campaign, const std::string& what) {
  uint64_t total = 0, largest = 0, cells = 0;
  for (int phase = 0; phase < kColumns; ++phase)
    for (int type = 0; type < sim::kFaultTypes; ++type) {
      const uint64_t count = CountOf(campaign, phase, type);
      total += count;
      cells += count > 0;
      largest = std::max(largest, count);
    }
  std::string body;
  for (int phase = 0; phase < kColumns; ++phase)
    body += SvgText(kMargin + kNames + phase * kCellWidth + (kCellWidth - kGap) / 2, kTop - 10, "c",
                    std::string(core::PhaseName(static_cast<Phase>(phase))));
  for (int type = 0; type < sim::kFaultTypes; ++type) {
    const double y = kTop + type * kCellHeight;
    std::string name(sim::FaultTypeName(static_cast<FaultType>(type)));
    std::replace(name.begin(), name.end(), '_', ' ');
    body += SvgText(kMargin + kNames - 10, y + kCellHeight / 2 + 3, "n", name);
    for (int phase = 0; phase < kColumns; ++phase)
      body += Cell(kMargin + kNames + phase * kCellWidth, y, CountOf(campaign, phase, type), largest);
  }
  const double width = 2 * kMargin + kNames + kColumns * kCellWidth;
  const double height = kTop + sim::kFaultTypes * kCellHeight + kFoot;
  const std::string title = "Which faults struck in which phase";
  const std::string kept = campaign.failures().empty()
                               ? "every promise kept in every run"
                               : Counted(campaign.failures().size(), "run", "runs") + " broke a promise";
  const std::string foot = FormatCount(total) + " faults in " + FormatCount(campaign.seeds_run()) + " runs, " +
                           FormatCount(campaign.incidents()) + " incidents, " + FormatCount(cells) + " of " +
                           std::to_string(kColumns * sim::kFaultTypes) + " cells; " + kept;
  body += SvgText(kMargin, height - 18, "s", foot);
  return SvgPicture{width, height, kMargin, title, what, kStyle}.Draw(body);
}

}  // namespace kintsugi::cli
