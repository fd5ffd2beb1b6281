#include "replica/save/missing_states.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "callbacks/state/key.h"
#include "callbacks/state/state_word.h"

namespace kintsugi::checkpoint {
namespace {

constexpr size_t kSentencesMax = 10;

using States = std::set<std::string>;

std::string Listed(const States& states) {
  std::string text;
  for (const std::string& state : states) text += (text.empty() ? "'" : ", '") + state + "'";
  return text;
}

}  // namespace

std::vector<std::string> MissingStates(const std::vector<std::string>& keys) {
  std::map<std::string, std::map<std::string, States>> families;  // family -> parameter -> states
  for (const std::string& key : keys)
    if (const auto name = ParseStateName(key); name && name->is_of_all)
      families[std::string(name->family)][std::string(name->parameter)].insert(std::string(name->word));
  std::vector<std::string> sentences;
  size_t others = 0;
  for (const auto& [family, parameters] : families) {
    std::map<States, std::string> kinds;  // each set of states, and one parameter that has it
    for (const auto& [parameter, states] : parameters) kinds.emplace(states, parameter);
    for (const auto& [parameter, states] : parameters) {
      const auto more = std::find_if(kinds.begin(), kinds.end(), [&own = states](const auto& kind) {
        return kind.first.size() > own.size() &&
               std::includes(kind.first.begin(), kind.first.end(), own.begin(), own.end());
      });
      if (more == kinds.end()) continue;
      if (sentences.size() == kSentencesMax) {
        ++others;
        continue;
      }
      States lacking;
      std::set_difference(more->first.begin(), more->first.end(), states.begin(), states.end(),
                          std::inserter(lacking, lacking.end()));
      sentences.push_back("parameter '" + PrintableKey(family + parameter) + "' lacks the optimizer's " +
                          Listed(lacking) + ", which '" + PrintableKey(family + more->second) + "' has: was it lost?");
    }
  }
  if (others > 0)
    sentences.push_back("and " + std::to_string(others) + " more parameters lack states that others have");
  return sentences;
}

}  // namespace kintsugi::checkpoint
