#include "integrations/examples/byte_lm/hold.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace kintsugi::byte_lm {
namespace {

template <class Number>
std::optional<Number> Whole(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status Malformed(const std::string& text, const std::string& why) {
  return {StatusCode::kInvalidArgument, "hold '" + text + "': " + why +
                                            "; write POINT:RANK[,RANK...]@STEP with POINT "
                                            "gradient-sync, gate or update, as in gate:0,1@5"};
}

}  // namespace

Result<Hold> ParseHold(const std::string& text) {
  const size_t colon = text.find(':');
  const size_t at = text.find('@');
  if (colon == std::string::npos || at == std::string::npos || at < colon)
    return Malformed(text, "a part is missing");
  Hold hold;
  const std::string point = text.substr(0, colon);
  if (point == "gate")
    hold.point = Hold::Point::kGate;
  else if (point == "gradient-sync")
    hold.point = Hold::Point::kGradientSync;
  else if (point == "update")
    hold.point = Hold::Point::kUpdate;
  else
    return Malformed(text, "there is no point '" + point + "'");
  const auto step = Whole<uint64_t>(std::string_view(text).substr(at + 1));
  if (!step || *step == 0) return Malformed(text, "steps are numbered from 1");
  hold.step = Step(*step);
  std::string_view ranks = std::string_view(text).substr(colon + 1, at - colon - 1);
  for (;;) {
    const size_t comma = ranks.find(',');
    const auto rank = Whole<int32_t>(ranks.substr(0, comma));
    if (!rank || *rank < 0) return Malformed(text, "ranks are numbered from 0");
    hold.ranks.push_back(Rank(*rank));
    if (comma == std::string_view::npos) return hold;
    ranks.remove_prefix(comma + 1);
  }
}

Holds::Holds(Rank self, std::vector<Hold> holds) : mine_(std::move(holds)) {
  std::erase_if(mine_, [&](const Hold& hold) {
    return std::find(hold.ranks.begin(), hold.ranks.end(), self) == hold.ranks.end();
  });
}

bool Holds::Take(Hold::Point point, Step step) {
  return std::erase_if(mine_, [&](const Hold& hold) { return hold.point == point && hold.step == step; }) > 0;
}

}  // namespace kintsugi::byte_lm
