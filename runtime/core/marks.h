// Marks: what a rank says of its process groups and of where it stands, once somebody has waited for too long; and what
// is made of that (blame.h).
//
// Units: ages, never instants: ranks have clocks of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/collective_call.h"
#include "runtime/base/ids.h"
#include "runtime/base/train_phase.h"

namespace kintsugi::core {

enum class CollectiveEnd : uint8_t {
  kOpen,    // entered, and not left
  kDone,
  kFailed,  // with an error, or aborted
};
std::string_view CollectiveEndName(CollectiveEnd end);

struct CollectiveMark {
  uint64_t number = 0;  // among the group's, from 1; sends and receives have numbers of their own
  CollectiveKind kind = CollectiveKind::kNone;
  uint32_t type = 0;
  uint32_t operation = 0;
  Rank root = Rank(-1);  // or the peer; by its place in the group
  uint64_t size = 0;
  uint32_t parts = 0;
  uint64_t order = 0;  // among all that this rank has entered, of whatever group
  CollectiveEnd end = CollectiveEnd::kOpen;
  bool waited = false;  // a thread waits for its end; of sends and receives, which may be posted long before
  Duration entered{};  // so long ago
};

struct GroupMarks {
  std::string name;         // equal on all members
  std::vector<Rank> ranks;  // in the group's order
  uint64_t entered = 0;     // so many collectives, sends and receives aside
  std::vector<CollectiveMark> newest;
};

// Its trainer's thread, as its agent sees it from outside.
struct Stand {
  std::string at;     // "loader.py:88 (fetch)"; empty: not known
  std::string call;   // the system call it is in: "read"; empty: none, or not known
  std::string state;  // by the kernel: "R", "S", "D", "T", ...; empty: not known
  bool python_stopped = false;     // nobody gets Python's lock
  std::vector<std::string> stack;  // newest frame first
};

struct RankMarks {
  uint64_t round = 0;  // which question this answers
  Progress place;
  Stand stand;
  std::vector<GroupMarks> groups;
};

enum class BlameKind : uint8_t {
  kNone,         // nothing can be said
  kMissing,      // it has not come to a collective in which all others wait
  kStopped,      // as that, and its Python, its process or its thread in the kernel stands still
  kOtherKind,    // it came with another collective
  kOtherType,
  kOtherSize,
  kOtherRoot,
  kOtherOrder,   // of two groups
  kNotLeft,      // all are within, and nobody comes out: the network, or a device
  kNoAnswer,     // its agent says nothing
};
std::string_view BlameKindName(BlameKind kind);

// Ranks whose trainers' threads stand alike.
struct FoldedStack {
  std::vector<Rank> ranks;
  std::string text;  // frames from the newest on, with " < " between them
};

struct Blame {
  BlameKind kind = BlameKind::kNone;
  std::vector<Rank> ranks;  // who is to blame; empty: nobody, or it cannot be told who of those that `text` names
  std::string text;
  std::vector<FoldedStack> stacks;
};

}  // namespace kintsugi::core
