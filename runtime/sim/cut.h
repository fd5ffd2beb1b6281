// Cut: how the state is cut among the ranks of one crew: who claims what, and who holds which cells.
//
// Where a trainer offers slices there is one cut, of all seats: who takes part holds what it always held. Where it offers any
// layout each crew has one of its own. The state is then three tensors of kCellRows x kCellColumns cells; a world of each size
// has its own way to cut them: rows, columns by rows (as tensor parallelism by data parallelism), or flat ranges (as ZeRO-1),
// and as many copies as its rule says.
//
// Threads: none; a Cuts that is shared grows as crews are asked for.
// Ownership: Cuts' of its cuts, which stay where they are.
// Invariants: every cell is held in every cut; equal crews have one cut.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "callbacks/state/piece_move.h"
#include "runtime/core/replica_map.h"

namespace kintsugi::sim {

// The simulator is made of the cores' words; its headers are seen by the command and the tests only.
using namespace core;

inline constexpr size_t kTensorsPerLayout = 3;
inline constexpr int kCellRows = 8, kCellColumns = 2;

using Claims = std::map<Rank, std::map<int, GroupClaim>>;

enum class CutKind : uint8_t { kRows, kColumns, kFlat };
std::string_view CutKindName(CutKind kind);

// Of a world of one size.
struct CutRule {
  CutKind kind = CutKind::kRows;
  int copies = 1;  // a divisor of the size
};

struct Cut {
  core::Crew crew;
  Claims claims;
  ReplicaMap replicas;
  std::vector<std::vector<Rank>> partners;  // by rank
  // Any layout: by rank.
  std::map<Rank, std::vector<int>> cells, main_cells;  // main: of which it is the first holder
  TensorsByRank tensors;

  // Layout and cell of each shard. Where no layout but one is offered a cell is what its first holder's number is.
  std::vector<std::pair<int, int>> CellsOf(Rank rank) const;
  const std::vector<int>& MainCellsOf(Rank rank) const { return main_cells.at(rank); }
};

class Cuts {
 public:
  // `rules` by size; none: no layout but that of `claims`.
  Cuts(int seats, Claims claims, std::map<int, CutRule> rules);
  Cuts(const Cuts&) = delete;
  Cuts& operator=(const Cuts&) = delete;

  bool any_layout() const { return !rules_.empty(); }
  const Cut& whole() const { return *whole_; }
  // Of these ranks. REQUIRES: there is a rule for so many.
  const Cut& Of(const core::Crew& crew) const;
  // Every one that was asked for.
  const std::map<std::vector<Rank>, std::unique_ptr<const Cut>>& all() const { return cuts_; }

 private:
  const std::map<int, CutRule> rules_;
  mutable std::map<std::vector<Rank>, std::unique_ptr<const Cut>> cuts_;  // by ranks
  const Cut* whole_;
};

std::string KeyOf(int layout, size_t tensor);

}  // namespace kintsugi::sim
