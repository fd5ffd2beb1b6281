// Orders: what the controller tells a rank to do in a phase, as plain data. Decided by runtime/core, carried out by
// handlers (the working defaults are in replica).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/ids.h"

namespace kintsugi {

// Rungs of the recovery ladder, cheapest first; behind the last what is no repair.
enum class Rung : uint8_t {
  kResume,
  kRetry,
  kPatch,
  kRebuild,
  kAdopt,
  kSpare,
  kRespawn,
  kShrink,
  kReload,
  kDump,
  kExit,
  kGrow,  // ranks come to those that take part, since somebody asked for that
};

// State of one layout that `destination` lacks and each of `sources` holds at the incident's step.
struct RepairMove {
  int layout = 0;
  Rank destination;
  std::vector<Rank> sources;      // at least one, unless it adopts; preferred first
  std::vector<std::string> keys;  // empty: every tensor of the layout and the mirrored objects
  // The destination maps the memory of the process before it, which its launcher holds: nothing is streamed. The agent
  // does it; a repair handler sees no such moves.
  bool adopt = false;
  Rank snapshot_of{-1};  // reload from memory: the rank whose snapshot the sources keep; else -1
};

// State is cut anew from an in-memory snapshot, and `moves` go to those that have no copy of their own: whose copies a holder brings,
// its own first.
KINTSUGI_EXPORT std::vector<Rank> CopiesBroughtBy(Rank holder, const std::vector<Rank>& holders,
                                                  const std::vector<RepairMove>& moves);

// A rank that another one could not connect to, and the port on its host.
struct UnreachedPeer {
  Rank rank;
  uint16_t port = 0;  // 0: not known
  bool operator==(const UnreachedPeer&) const = default;
};

// The layout of an entry that is no shard: a rank whose objects nobody else has stores them.
inline constexpr int kObjectsAlone = -1;

// One shard of one layout that a rank writes in a save.
struct SaveEntry {
  int layout = 0;                // or kObjectsAlone
  std::vector<Rank> holders;     // ranks that hold this shard, dead ones included; the writer is one of them
  std::vector<Rank> objects_of;  // ranks whose mirrored objects the writer stores beside it
};

}  // namespace kintsugi
