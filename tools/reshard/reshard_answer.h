// ReshardAnswer: what `kintsugi reshard plan` answers, from a spec to JSON or a table.
//
// What: a plan, proven, with every move as a box on both sides. Without an AOA program names and boxes are equal on
// both sides. Memory: linear in moves; more than kMovesMax are refused.
// Threads: pure; an answer is plain data.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "replica/layout/strict.h"
#include "tools/reshard/layout_spec.h"
#include "tools/reshard/refusal.h"

namespace kintsugi::reshard {

inline constexpr uint64_t kMovesMax = 20'000'000;

struct ReshardQuestion {
  LayoutSpec spec;
  std::optional<std::vector<std::string>> statements;  // of an AOA program
  bool reverse = false;
  bool optional = false;  // of the program: patterns may match nothing
  std::optional<int32_t> rank;
  layout::StrictHandling strict = layout::StrictHandling::kRaiseUnexpected;
};

struct ListedMove {
  uint32_t key = 0, source_key = 0;  // numbers in the metadata of the target, of the source
  int32_t from = 0, to = 0;
  uint32_t steps = 0;  // number of a list of steps; 0: none
  int64_t bytes = 0;
  uint64_t source_box = 0, target_box = 0;  // where the coordinates of the answer have them
};

struct ReshardAnswer {
  LayoutSpec spec;
  std::vector<ListedMove> moves;
  std::vector<int64_t> coordinates;  // of the moves' boxes, each all lo, then all hi
  std::vector<std::vector<std::string>> steps = {{}};
  int64_t bytes_total = 0, bytes_local = 0;  // of the moves as listed
  // With an AOA program: a source box that a rank needs for several target boxes is listed for each, but travels once.
  std::optional<int64_t> bytes_moved;
  std::vector<std::string> added, dropped;  // keys of the target that nothing is written to
  std::vector<std::string> unexpected;      // and those that are not stored, where the strict mode lets them be
  std::vector<std::string> unread;          // stored keys that no rank asks for

  layout::Box SourceBox(const ListedMove& move) const {
    return layout::BoxFrom(coordinates.data() + move.source_box, spec.source.keys[move.source_key].axes);
  }
  layout::Box TargetBox(const ListedMove& move) const {
    return layout::BoxFrom(coordinates.data() + move.target_box, spec.target.keys[move.key].axes);
  }

  // {"ok": true, "moves": [{"key", "source_key", "from_rank", "to_rank", "source_box", "target_box", "steps",
  // "bytes"}],
  //  "bytes_total", "bytes_local", "unexpected", "unread", "checked": true}; with a program also "bytes_moved",
  //  "added", "dropped".
  // Handed over in parts of about 64 KiB, in order: the text may be larger than the answer.
  void WriteJson(const std::function<void(std::string_view)>& write) const;
  std::string ToJson() const;
  // For people: totals, bytes per rank, the first moves.
  std::string ToTable() const;
};

Result<ReshardAnswer, AnswerRefusal> AnswerReshard(ReshardQuestion question);

}  // namespace kintsugi::reshard
