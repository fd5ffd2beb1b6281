// The transition tables of phases, of saves and of halts, and the diagrams in docs/protocol.md, are the same.
#include "runtime/core/phase.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "runtime/core/halt_state.h"
#include "runtime/core/save_state.h"

namespace kintsugi::core {
namespace {

struct Stop {
  std::vector<int> states;
  bool optional = false;
};

// A diagram of that page: in which block it stands, how its states are called, and what "any" is.
struct Table {
  std::string block;
  std::map<std::string, int> by_name;
  std::set<int> any;
};

Table PhaseTable() {
  Table table{"```phases", {}, {}};
  for (int i = 0; i < kPhaseCount; ++i) {
    table.by_name[std::string(PhaseName(static_cast<Phase>(i)))] = i;
    if (static_cast<Phase>(i) != Phase::kEnded) table.any.insert(i);
  }
  return table;
}

Table SaveTable() {
  Table table{"```saves", {}, {}};
  for (int i = 0; i < kSaveStateCount; ++i) {
    table.by_name[std::string(SaveStateName(static_cast<SaveState>(i)))] = i;
    table.any.insert(i);
  }
  return table;
}

Table HaltTable() {
  Table table{"```halts", {}, {}};
  for (int i = 0; i < kHaltStateCount; ++i) {
    table.by_name[std::string(HaltStateName(static_cast<HaltState>(i)))] = i;
    table.any.insert(i);
  }
  return table;
}

// A line of the diagram is "A -> B | C -> [D] -> E": sets of states, one after the other; a set in brackets may be
// passed by.
std::vector<Stop> ParseLine(const std::string& line, const Table& table) {
  std::vector<Stop> stops(1);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word == "->") {
      stops.emplace_back();
    } else if (word == "any") {
      stops.back().states.assign(table.any.begin(), table.any.end());
    } else if (word != "|") {
      if (word.front() == '[') stops.back().optional = true, word = word.substr(1, word.size() - 2);
      if (!table.by_name.count(word)) {
        ADD_FAILURE() << "the diagram names '" << word << "'";
      } else {
        stops.back().states.push_back(table.by_name.at(word));
      }
    }
  }
  return stops;
}

std::set<std::pair<int, int>> Diagram(const Table& table) {
  std::ifstream page(KINTSUGI_CORE_PROTOCOL);
  std::set<std::pair<int, int>> edges;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line == table.block) {
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (inside && !line.empty()) {
      const std::vector<Stop> stops = ParseLine(line, table);
      for (size_t i = 0; i + 1 < stops.size(); ++i)
        for (size_t j = i + 1; j < stops.size(); ++j) {
          for (int from : stops[i].states)
            for (int to : stops[j].states) edges.insert({from, to});
          if (!stops[j].optional) break;
        }
    }
  }
  return edges;
}

TEST(Phase, TableAndDiagramAreTheSame) {
  const auto diagram = Diagram(PhaseTable());
  ASSERT_FALSE(diagram.empty()) << KINTSUGI_CORE_PROTOCOL;
  for (int from = 0; from < kPhaseCount; ++from)
    for (int to = 0; to < kPhaseCount; ++to)
      EXPECT_EQ(IsTransition(static_cast<Phase>(from), static_cast<Phase>(to)), diagram.count({from, to}) > 0)
          << PhaseName(static_cast<Phase>(from)) << " -> " << PhaseName(static_cast<Phase>(to));
}

TEST(SaveState, TableAndDiagramAreTheSame) {
  const auto diagram = Diagram(SaveTable());
  ASSERT_FALSE(diagram.empty()) << KINTSUGI_CORE_PROTOCOL;
  for (int from = 0; from < kSaveStateCount; ++from)
    for (int to = 0; to < kSaveStateCount; ++to)
      EXPECT_EQ(IsTransition(static_cast<SaveState>(from), static_cast<SaveState>(to)), diagram.count({from, to}) > 0)
          << SaveStateName(static_cast<SaveState>(from)) << " -> " << SaveStateName(static_cast<SaveState>(to));
}

TEST(HaltState, TableAndDiagramAreTheSame) {
  const auto diagram = Diagram(HaltTable());
  ASSERT_FALSE(diagram.empty()) << KINTSUGI_CORE_PROTOCOL;
  for (int from = 0; from < kHaltStateCount; ++from)
    for (int to = 0; to < kHaltStateCount; ++to)
      EXPECT_EQ(IsTransition(static_cast<HaltState>(from), static_cast<HaltState>(to)), diagram.count({from, to}) > 0)
          << HaltStateName(static_cast<HaltState>(from)) << " -> " << HaltStateName(static_cast<HaltState>(to));
}

TEST(SaveState, IsOneOfThreeKinds) {
  for (int i = 0; i < kSaveStateCount; ++i) {
    const auto state = static_cast<SaveState>(i);
    EXPECT_EQ(InLoops(state) + Compares(state) + Writes(state) +
                  (state == SaveState::kRescuing || state == SaveState::kPaused),
              1)
        << SaveStateName(state);
  }
}

TEST(Phase, NothingLeavesEnded) {
  for (int to = 0; to < kPhaseCount; ++to) EXPECT_FALSE(IsTransition(Phase::kEnded, static_cast<Phase>(to)));
}

}  // namespace
}  // namespace kintsugi::core
