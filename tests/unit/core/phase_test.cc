// The transition table and the diagram in the folder's README are the same.
#include "runtime/core/phase.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

namespace kintsugi::core {
namespace {

struct Stop {
  std::vector<Phase> phases;
  bool optional = false;
};

// A line of the diagram is "A -> B | C -> [D] -> E": sets of phases, one after the other; a set in brackets may be
// passed by; "any" is every phase but ENDED.
std::vector<Stop> ParseLine(const std::string& line) {
  std::map<std::string, Phase> by_name;
  for (int i = 0; i < kPhaseCount; ++i)
    by_name[std::string(PhaseName(static_cast<Phase>(i)))] = static_cast<Phase>(i);
  std::vector<Stop> stops(1);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word == "->") {
      stops.emplace_back();
    } else if (word == "any") {
      for (const auto& [name, phase] : by_name)
        if (phase != Phase::kEnded) stops.back().phases.push_back(phase);
    } else if (word != "|") {
      if (word.front() == '[') stops.back().optional = true, word = word.substr(1, word.size() - 2);
      if (!by_name.count(word)) ADD_FAILURE() << "the diagram names '" << word << "'";
      else stops.back().phases.push_back(by_name[word]);
    }
  }
  return stops;
}

std::set<std::pair<Phase, Phase>> Diagram() {
  std::ifstream readme(KINTSUGI_CORE_README);
  std::set<std::pair<Phase, Phase>> edges;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line == "```phases") inside = true;
    else if (line == "```") inside = false;
    else if (inside && !line.empty()) {
      const std::vector<Stop> stops = ParseLine(line);
      for (size_t i = 0; i + 1 < stops.size(); ++i)
        for (size_t j = i + 1; j < stops.size(); ++j) {
          for (Phase from : stops[i].phases)
            for (Phase to : stops[j].phases) edges.insert({from, to});
          if (!stops[j].optional) break;
        }
    }
  }
  return edges;
}

TEST(Phase, TableAndDiagramAreTheSame) {
  const auto diagram = Diagram();
  ASSERT_FALSE(diagram.empty()) << KINTSUGI_CORE_README;
  for (int from = 0; from < kPhaseCount; ++from)
    for (int to = 0; to < kPhaseCount; ++to) {
      const std::pair edge{static_cast<Phase>(from), static_cast<Phase>(to)};
      EXPECT_EQ(IsTransition(edge.first, edge.second), diagram.count(edge) > 0)
          << PhaseName(edge.first) << " -> " << PhaseName(edge.second);
    }
}

TEST(Phase, NothingLeavesEnded) {
  for (int to = 0; to < kPhaseCount; ++to) EXPECT_FALSE(IsTransition(Phase::kEnded, static_cast<Phase>(to)));
}

}  // namespace
}  // namespace kintsugi::core
