#include "replica/formats/rank_names.h"

#include <algorithm>
#include <cctype>

#include "replica/formats/mapped_file.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

constexpr std::string_view kWords[] = {"rank", "shard", "model_part", "consolidated", "mp", "tp"};
constexpr std::string_view kDigits = "0123456789", kSeparators = "_-.";
constexpr size_t kDigitsMax = 9;

// In letters of either case: grok-2's files are called pytorch_model-00001-TP-000.safetensors.
bool EndsWithWord(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.end() - static_cast<ptrdiff_t>(word.size()),
                    [](char a, char b) { return a == std::tolower(b); });
}

}  // namespace

std::vector<std::string> OtherRanksNames(std::string_view name) {
  std::vector<std::string> names;
  for (size_t begin = name.find_first_of(kDigits); begin != std::string_view::npos;) {
    const size_t end = std::min(name.find_first_not_of(kDigits, begin), name.size());
    const size_t word_end = name.find_last_not_of(kSeparators, begin - (begin > 0)) + 1;
    const std::string_view before = name.substr(0, begin == 0 ? 0 : word_end);
    const bool is_rank = std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view word) {
      if (!EndsWithWord(before, word)) return false;
      const size_t at = before.size() - word.size();
      return at == 0 || kSeparators.find(before[at - 1]) != std::string_view::npos;
    });
    if (is_rank && end - begin <= kDigitsMax) {
      const long number = std::stol(std::string(name.substr(begin, end - begin)));
      std::string other = std::to_string(number == 0 ? 1 : 0);
      other.insert(0, end - begin - std::min(other.size(), end - begin), '0');
      names.push_back(std::string(name.substr(0, begin)) + other + std::string(name.substr(end)));
    }
    begin = name.find_first_of(kDigits, end);
  }
  return names;
}

std::string OtherRanksFile(const std::string& path) {
  if (KindOfPath(path) != PathKind::kFile) return "";
  const std::string name = checkpoint::BaseName(path), folder = checkpoint::ParentOf(path);
  for (const std::string& other : OtherRanksNames(name))
    if (const std::string found = checkpoint::Join(folder, other); IsFile(found)) return found;
  for (const std::string& other : OtherRanksNames(checkpoint::BaseName(folder)))
    if (const std::string found = checkpoint::Join(checkpoint::Join(checkpoint::ParentOf(folder), other), name);
        IsFile(found))
      return found;
  return "";
}

}  // namespace kintsugi::formats
