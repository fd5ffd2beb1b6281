#include "tests/unit/wire/schema_text.h"

#include <regex>
#include <sstream>

namespace kintsugi::wire {

KnownNumbers ReadNumbers(const std::string& schema) {
  static const std::regex message(R"(^message (\w+) \{.*)"), reserved(R"(^\s*reserved (\d+(?:, \d+)*);.*)"),
      field(R"(^\s*(.*\S) \w+ = (\d+);.*)"), number(R"(\d+)");
  KnownNumbers known;
  std::string name, line;
  for (std::istringstream lines(schema); std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, message)) {
      name = found[1];
    } else if (std::regex_match(line, found, reserved)) {
      const std::string numbers = found[1];
      for (std::sregex_iterator one(numbers.begin(), numbers.end(), number), end; one != end; ++one)
        known.reserved[name].insert(static_cast<uint32_t>(std::stoul(one->str())));
    } else if (std::regex_match(line, found, field)) {
      known.types[name][static_cast<uint32_t>(std::stoul(found[2]))] = found[1];
    }
  }
  return known;
}

std::string SchemaText::Text(const std::string& head, const KnownNumbers& known) const {
  std::string text = head;
  for (const Entry& entry : messages_) {
    std::string body;
    for (const std::string& line : entry.lines) body += "  " + line + "\n";
    std::set<uint32_t> gone;
    if (const auto old = known.reserved.find(entry.name); old != known.reserved.end()) gone = old->second;
    const auto now = ReadNumbers("message " + entry.name + " {\n" + body).types;
    if (const auto old = known.types.find(entry.name); old != known.types.end())
      for (const auto& [number, type] : old->second)
        if (now.empty() || !now.begin()->second.contains(number)) gone.insert(number);
    std::string numbers;
    for (const uint32_t number : gone) numbers += (numbers.empty() ? "" : ", ") + std::to_string(number);
    text += "\nmessage " + entry.name + (body.empty() && gone.empty() ? " {" : " {\n") +
            (gone.empty() ? "" : "  reserved " + numbers + ";\n") + body + "}\n";
  }
  return text;
}

}  // namespace kintsugi::wire
