#include "tools/reshard/picture.h"

#include <algorithm>
#include <map>

#include "replica/layout/flat_range.h"
#include "tools/report/svg.h"
#include "tools/report/text.h"

namespace kintsugi::reshard {
namespace {

using layout::Box;
using layout::KeyMeta;

constexpr double kMargin = 28, kGap = 26, kHeadHeight = 86, kLabelHeight = 22;
constexpr double kSourceWidth = 300, kTargetWidth = 190, kAspectMax = 2.2;
constexpr size_t kSourcesMax = 4, kPanelsMax = 12, kColumns = 3, kRectanglesMax = 2000, kHues = 8;

// Text keeps a contrast of more than 4.5 to 1 on every fill, in both schemes.
constexpr const char* kStyle = R"css(<style>
svg{color-scheme:light dark;--paper:#fbfaf7;--ink:#211e1a;--soft:#655f55;--rule:#b9b1a3}
text{font:13px "Inter","Segoe UI",system-ui,sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}
.h{font-size:21px}.s{fill:var(--soft)}.c{text-anchor:middle;dominant-baseline:central;font-size:12px}
.p{fill:var(--paper)}.o{fill:none;stroke:var(--rule);stroke-width:1.5}.own{fill:url(#own)}
.b{stroke-width:1;stroke:hsl(var(--hue) 45% 38%);fill:hsl(var(--hue) 60% 82%)}
.h0{--hue:42}.h1{--hue:212}.h2{--hue:150}.h3{--hue:330}.h4{--hue:12}.h5{--hue:268}.h6{--hue:185}.h7{--hue:95}
.l{stroke:var(--ink);stroke-opacity:.28;stroke-width:2}
@media (prefers-color-scheme:dark){svg{--paper:#141518;--ink:#ece7dc;--soft:#a8a195;--rule:#5a5750}
.b{stroke:hsl(var(--hue) 50% 62%);fill:hsl(var(--hue) 42% 27%)}}
</style>
<defs><pattern id="own" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<path class="l" d="M0 0V8"/></pattern></defs>
)css";

std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<uint64_t>(bytes)); }

std::string Hue(int32_t rank) { return "b h" + std::to_string(static_cast<size_t>(rank) % kHues); }

// A tensor drawn to scale, unless it would be a strip.
class Panel {
 public:
  Panel(const KeyMeta& key, double x, double y, double width)
      : x_(x),
        y_(y),
        width_(width),
        height_(HeightOf(key, width)),
        scale_x_(width / Length(key, 1)),
        scale_y_(height_ / Length(key, 0)) {}

  static double Length(const KeyMeta& key, int axis) {
    return static_cast<double>(std::max<int64_t>(1, key.global_shape[axis]));
  }
  static double HeightOf(const KeyMeta& key, double width) {
    return width * std::clamp(Length(key, 0) / Length(key, 1), 1 / kAspectMax, 1.25);
  }

  std::string Draw(const Box& box, const std::string& css, const std::string& label) const {
    const double x = x_ + static_cast<double>(box.lo[1]) * scale_x_, y = y_ + static_cast<double>(box.lo[0]) * scale_y_;
    const double width = static_cast<double>(box.length(1)) * scale_x_,
                 height = static_cast<double>(box.length(0)) * scale_y_;
    std::string drawn = SvgRectangle(x, y, width, height, css);
    if (width > 7.0 * static_cast<double>(label.size()) + 4 && height > 15)
      drawn += SvgText(x + width / 2, y + height / 2, "c", label);
    return drawn;
  }
  std::string Outline() const { return SvgRectangle(x_, y_, width_, height_, "o"); }

 private:
  double x_, y_, width_, height_, scale_x_, scale_y_;
};

class Picture {
 public:
  Picture(const ReshardAnswer& answer, uint32_t key) : answer_(answer), key_(key) {
    for (const ListedMove& move : answer.moves)
      if (move.key == key) moves_.push_back(&move);
  }

  std::string Draw() {
    const double left = DrawSources(), right = DrawTargets();
    const double width = 2 * kMargin + kSourceWidth + 2 * kGap + kColumns * kTargetWidth + (kColumns - 1) * kGap;
    const double height = std::max(left, right) + kMargin + 16;
    body_ += SvgText(kMargin, height - kMargin + 6, "s",
                     "Colour: the rank that holds and sends. Hatched: stays on its rank." + note_);
    return SvgPicture{width, height, kMargin, Title(), Subtitle(), kStyle}.Draw(body_);
  }

 private:
  const KeyMeta& Wanted() const { return answer_.spec.target.keys[key_]; }
  static std::string NameOf(const KeyMeta& key) {
    return Elide(key.name, 40) + " [" + std::to_string(key.global_shape[0]) + ", " +
           std::to_string(key.global_shape[1]) + "]";
  }
  std::string Title() const { return NameOf(Wanted()) + ": who sends what to whom"; }
  std::string Subtitle() const {
    int64_t total = 0, local = 0;
    for (const ListedMove* move : moves_) {
      total += move->bytes;
      if (move->from == move->to) local += move->bytes;
    }
    return Counted(moves_.size(), "move", "moves") + ", " + Bytes(total) + ", of which " + Bytes(local) +
           " stay on their rank";
  }

  double DrawSources() {
    std::vector<uint32_t> sources;
    for (const ListedMove* move : moves_)
      if (std::find(sources.begin(), sources.end(), move->source_key) == sources.end())
        sources.push_back(move->source_key);
    double y = kHeadHeight;
    for (size_t i = 0; i < sources.size(); ++i) {
      const KeyMeta& key = answer_.spec.source.keys[sources[i]];
      if (i == kSourcesMax) {
        body_ += SvgText(kMargin, y + 12, "s", "and " + std::to_string(sources.size() - i) + " more stored tensors");
        return y + kLabelHeight;
      }
      body_ += SvgText(kMargin, y + 12, "", "Held: " + (key.axes == 2 ? NameOf(key) : Elide(key.name, 40)));
      y += kLabelHeight;
      if (key.axes != 2) continue;
      const double width = sources.size() > 2 ? kSourceWidth * 0.6 : kSourceWidth;
      const Panel panel(key, kMargin, y, width);
      for (uint32_t piece = 0; piece < key.piece_count; ++piece)
        DrawHeld(panel, answer_.spec.source.Piece(key, key.first_piece + piece));
      body_ += panel.Outline();
      y += Panel::HeightOf(key, width) + kGap;
    }
    return y;
  }

  void DrawHeld(const Panel& panel, const layout::PieceView& piece) {
    std::string label;
    for (size_t i = 0; i < piece.holders.size(); ++i) {
      if (i > 0 && piece.holders[i].rank == piece.holders[i - 1].rank) continue;
      label += (label.empty() ? "rank " : ", ") + std::to_string(piece.holders[i].rank);
      if (label.size() > 24) break;
    }
    for (const Box& box :
         BoxesOf(piece.box(), piece.is_flat() ? piece.flat : FlatRange{0, Volume(piece.box()).value_or(0)}))
      if (Counts()) body_ += panel.Draw(box, Hue(piece.holders[0].rank), label);
  }

  double DrawTargets() {
    std::map<int32_t, std::vector<const ListedMove*>> by_rank;
    for (const ListedMove* move : moves_) by_rank[move->to].push_back(move);
    const double row_height = kLabelHeight + Panel::HeightOf(Wanted(), kTargetWidth) + kGap;
    const double x = kMargin + kSourceWidth + 2 * kGap;
    size_t drawn = 0;
    for (const auto& [rank, moves] : by_rank) {
      if (drawn == kPanelsMax) {
        note_ +=
            " Drawn are " + std::to_string(kPanelsMax) + " of " + std::to_string(by_rank.size()) + " receiving ranks.";
        break;
      }
      const double at_x = x + static_cast<double>(drawn % kColumns) * (kTargetWidth + kGap);
      const double at_y = kHeadHeight + static_cast<double>(drawn / kColumns) * row_height;
      int64_t bytes = 0;
      for (const ListedMove* move : moves) bytes += move->bytes;
      body_ += SvgText(at_x, at_y + 12, "", "Rank " + std::to_string(rank) + " gets " + Bytes(bytes));
      const Panel panel(Wanted(), at_x, at_y + kLabelHeight, kTargetWidth);
      body_ += panel.Outline();
      for (const ListedMove* move : moves) {
        if (!Counts()) break;
        const bool is_own = move->from == move->to;
        const std::string label = is_own ? "own" : "from " + std::to_string(move->from);
        body_ += panel.Draw(answer_.TargetBox(*move), Hue(move->from), is_own ? "" : label);
        if (is_own) body_ += panel.Draw(answer_.TargetBox(*move), "own", label);
      }
      ++drawn;
    }
    return kHeadHeight + static_cast<double>((drawn + kColumns - 1) / kColumns) * row_height;
  }

  // Whether one more rectangle may be drawn.
  bool Counts() {
    if (++rectangles_ == kRectanglesMax)
      note_ += " Only the first " + std::to_string(kRectanglesMax) + " boxes are drawn.";
    return rectangles_ < kRectanglesMax;
  }

  const ReshardAnswer& answer_;
  const uint32_t key_;
  std::vector<const ListedMove*> moves_;
  std::string body_, note_;
  size_t rectangles_ = 0;
};

}  // namespace

Result<std::string> DrawMoves(const ReshardAnswer& answer, const std::string& key) {
  const auto refuse = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  const auto& keys = answer.spec.target.keys;
  if (key.empty()) {
    for (const ListedMove& move : answer.moves)
      if (keys[move.key].axes == 2) return Picture(answer, move.key).Draw();
    return refuse("nothing is sent of a tensor of two axes, which is what can be drawn");
  }
  const auto found = answer.spec.target.Find(key);
  if (found.empty()) return refuse("'" + key + "' is not among the target's tensors");
  if (found.front().axes != 2)
    return refuse("'" + key + "' has " + std::to_string(found.front().axes) + " axes; what can be drawn has two");
  return Picture(answer, static_cast<uint32_t>(&found.front() - keys.data())).Draw();
}

}  // namespace kintsugi::reshard
