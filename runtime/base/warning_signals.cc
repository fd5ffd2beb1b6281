#include "runtime/base/warning_signals.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace kintsugi {
namespace {

struct Name {
  std::string_view name;
  int number;
};
constexpr std::array kNames = {
    Name{"ALRM", SIGALRM},     Name{"HUP", SIGHUP},   Name{"INT", SIGINT},   Name{"IO", SIGIO},
    Name{"PROF", SIGPROF},     Name{"PWR", SIGPWR},   Name{"QUIT", SIGQUIT}, Name{"TERM", SIGTERM},
    Name{"USR1", SIGUSR1},     Name{"USR2", SIGUSR2}, Name{"XCPU", SIGXCPU}, Name{"URG", SIGURG},
    Name{"VTALRM", SIGVTALRM},
};

// What stands behind RTMIN or RTMAX; -1: nothing that could.
int Offset(std::string_view text, char sign) {
  if (text.empty()) return 0;
  int offset = 0;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), offset);
  return text[0] == sign && error == std::errc() && end == text.data() + text.size() && offset >= 0 ? offset : -1;
}

// 0: it is none.
int NumberOf(std::string_view word) {
  if (word.starts_with("SIG")) word.remove_prefix(3);
  const int most = SIGRTMAX - SIGRTMIN;
  const bool from_first = word.starts_with("RTMIN");
  if (from_first || word.starts_with("RTMAX")) {
    const int offset = Offset(word.substr(5), from_first ? '+' : '-');
    if (offset < 0 || offset > most) return 0;
    return from_first ? SIGRTMIN + offset : SIGRTMAX - offset;
  }
  const auto found = std::find_if(kNames.begin(), kNames.end(), [word](const Name& each) { return each.name == word; });
  return found == kNames.end() ? 0 : found->number;
}

std::string Known() {
  std::string text;
  for (const Name& each : kNames) text += std::string(each.name) + ", ";
  return text + "RTMIN to RTMIN+" + std::to_string(SIGRTMAX - SIGRTMIN);
}

}  // namespace

Result<std::vector<int>> ParseSignals(const std::string& list) {
  std::vector<int> numbers;
  for (size_t begin = 0; !list.empty() && begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    const int number = NumberOf(word);
    if (number == 0)
      return Status(StatusCode::kInvalidArgument,
                    "'" + word + "' is no signal that can warn of an end: " + Known() + ", with commas between them");
    if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

}  // namespace kintsugi
