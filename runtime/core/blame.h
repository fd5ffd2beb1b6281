// FindBlame: whom a hang is the fault of, and why, from what the ranks say of their groups.
//
// What: in every group members enter the same collectives in the same order, so the n-th of one member is the n-th of
// all. First what differs is looked for: the earliest number that is not over everywhere and at which members are in
// different calls; the few differ from the many, and of two as many the one that leaves what it did before. Then who
// keeps whom waiting: a rank within a collective waits for those that have not come to it; who has not come, and waits
// for nobody, is missing. Where all wait, two groups were entered in different orders, or all are within.
// Threads: none; pure.
// Units: durations.
// Invariants: who waits for others is never to blame; what somebody did not say is not made up: without an answer a rank
// is to blame only where it gives no sign of life. The order of the ranks' answers, and which of them came, changes no
// innocent into a culprit.
#pragma once

#include <optional>
#include <vector>

#include "runtime/core/marks.h"

namespace kintsugi::core {

struct RankSaid {
  Rank rank;
  std::optional<RankMarks> marks;  // nothing: it did not answer
  std::optional<Step> finished;    // its loop has ended behind that step
  bool parked = false;             // it waits outside of its loop by the controller's word, and for nobody here
  bool silent = false;             // no sign of life for a while
  bool ended = false;              // its process has come to its own end; its marks are what it left
};

struct BlameQuestion {
  std::vector<RankSaid> ranks;
  Duration least{};  // who entered a collective more recently is still on the way
  // False: a collective failed, and all have been stopped since: only what differs says something.
  bool waits = true;
};

Blame FindBlame(const BlameQuestion& asked);

}  // namespace kintsugi::core
