#include "replica/save/missing_states.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "callbacks/state/key.h"

namespace kintsugi::checkpoint {
namespace {

constexpr size_t kSentencesMax = 10;

// As torch's, DeepSpeed's, Megatron's and Paddle's optimizers call them. What one value is for a whole group is not
// here, nor are master weights of those optimizers that keep them of narrow parameters alone.
constexpr std::string_view kStates[] = {"exp_avg",    "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer",
                                        "square_avg", "grad_avg",   "acc_delta",      "exp_inf",
                                        "fp32",       "moment1_0",  "moment2_0",      "velocity_0"};

bool IsState(std::string_view part) {
  return std::find(std::begin(kStates), std::end(kStates), part) != std::end(kStates);
}

struct StateName {
  std::string family;  // what stands before, so that two optimizers of a checkpoint are two
  std::string parameter, state;
};

// Nothing where no part of the name is a state, or nothing but it.
bool Split(const std::string& key, StateName* name) {
  const size_t last = key.rfind('.');
  if (last != std::string::npos && last > 0 && IsState(std::string_view(key).substr(last + 1))) {
    *name = {"", key.substr(0, last), key.substr(last + 1)};
    return true;
  }
  for (size_t at = 0; at < key.size();) {
    const size_t end = std::min(key.find('.', at), key.size());
    if (end + 1 < key.size() && IsState(std::string_view(key).substr(at, end - at))) {
      *name = {key.substr(0, at), key.substr(end + 1), key.substr(at, end - at)};
      return true;
    }
    at = end + 1;
  }
  return false;
}

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
    if (StateName name; Split(key, &name)) families[name.family][name.parameter].insert(name.state);
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
