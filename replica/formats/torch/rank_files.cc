#include "replica/formats/torch/rank_files.h"

namespace kintsugi::formats::torch {
namespace {

constexpr size_t kDigitsMax = 9;

// Takes the number at the end off; nothing where there is none.
std::optional<int64_t> TakeNumber(std::string_view* text) {
  const size_t last = text->find_last_not_of("0123456789");
  const std::string_view digits = text->substr(last == std::string_view::npos ? 0 : last + 1);
  if (digits.empty() || digits.size() > kDigitsMax) return std::nullopt;
  text->remove_suffix(digits.size());
  return std::stoll(std::string(digits));
}

void TakeSeparators(std::string_view* text) {
  while (!text->empty() && (text->back() == '_' || text->back() == '-' || text->back() == '.')) text->remove_suffix(1);
}

bool TakeWord(std::string_view* text, std::string_view word) {
  if (!text->ends_with(word)) return false;
  text->remove_suffix(word.size());
  return true;
}

}  // namespace

std::optional<RankFileName> ParseRankFileName(std::string_view name) {
  bool is_torch = false;
  for (const std::string_view ending : {".pt", ".pth", ".bin"}) is_torch = is_torch || TakeWord(&name, ending);
  const auto rank = is_torch ? TakeNumber(&name) : std::nullopt;
  if (!rank) return std::nullopt;
  RankFileName parsed;
  parsed.rank = *rank;
  TakeSeparators(&name);
  parsed.says_rank = TakeWord(&name, "rank");
  TakeSeparators(&name);
  std::string_view before = name;
  if (const auto world = TakeNumber(&before)) {
    TakeSeparators(&before);
    if (TakeWord(&before, "world_size")) {
      parsed.world = world;
      name = before;
      TakeSeparators(&name);
    }
  }
  parsed.family = std::string(name);
  return parsed;
}

}  // namespace kintsugi::formats::torch
