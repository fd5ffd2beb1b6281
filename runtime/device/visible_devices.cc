#include "runtime/device/visible_devices.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/check.h"

namespace kintsugi::device {
namespace {

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

}  // namespace

VisibleDevices::VisibleDevices(const std::optional<std::string>& said, std::optional<int> count,
                               const std::function<int(const std::string&)>& number_of) {
  if (!said) {
    for (int number = 0; number < count.value_or(0); ++number) {
      words_.push_back(std::to_string(number));
      numbers_.push_back(number);
    }
    return;
  }
  for (size_t begin = 0; begin <= said->size();) {
    const size_t end = std::min(said->find(',', begin), said->size());
    const std::string word = Trimmed(said->substr(begin, end - begin));
    begin = end + 1;
    const bool is_name = word.starts_with("GPU-") || word.starts_with("MIG-");
    int number = -1;
    if (is_name) {
      number = number_of(word);
    } else {
      const auto [behind, error] = std::from_chars(word.data(), word.data() + word.size(), number);
      const bool is_number = error == std::errc() && behind == word.data() + word.size();
      if (!is_number || number < 0 || (count && number >= *count)) return;
    }
    words_.push_back(word);
    numbers_.push_back(number);
  }
}

int VisibleDevices::PositionOf(int number) const {
  const auto at = std::find(numbers_.begin(), numbers_.end(), number);
  return number < 0 || at == numbers_.end() ? -1 : static_cast<int>(at - numbers_.begin());
}

std::string VisibleDevices::Swapped(int position, int wanted) const {
  std::vector<std::string> words = words_;
  KINTSUGI_CHECK(position >= 0 && position < size() && wanted >= 0 && wanted < size(),
                 "a process would be given a device that none of its kind sees");
  std::swap(words[static_cast<size_t>(position)], words[static_cast<size_t>(wanted)]);
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

}  // namespace kintsugi::device
