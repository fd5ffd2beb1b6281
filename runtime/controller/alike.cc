#include "runtime/controller/alike.h"

#include <map>

namespace kintsugi {
namespace {

std::map<std::string, std::string> ValuesOf(const std::vector<std::string>& options) {
  std::map<std::string, std::string> values;
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals != std::string::npos) values[option.substr(0, equals)] = option.substr(equals + 1);
  }
  return values;
}

std::string Shown(const std::string& value) { return value.empty() ? "none" : value; }

}  // namespace

std::vector<Unlike> FindUnlike(const std::vector<std::string>& theirs, const std::vector<std::string>& ours) {
  std::vector<Unlike> unlike;
  const std::map<std::string, std::string> other = ValuesOf(theirs);
  for (const auto& [option, value] : ValuesOf(ours))
    if (const auto found = other.find(option); found != other.end() && found->second != value)
      unlike.push_back({option, Shown(found->second), Shown(value)});
  return unlike;
}

std::string WhyUnlike(const std::string& them, const std::vector<std::string>& theirs, const std::string& us,
                      const std::vector<std::string>& ours) {
  std::string why;
  for (const Unlike& one : FindUnlike(theirs, ours))
    why += (why.empty() ? "" : "; ") + them + " has " + one.option + " " + one.theirs + ", " + us + " " + one.ours;
  return why.empty() ? "" : why + ": start every node with the same";
}

}  // namespace kintsugi
