// Allegiance: whom a launcher obeys, and what it does when it hears who leads.
//
// Rule: nothing of an older term than the newest it has obeyed, and nothing that ElectionCore's promises exclude.
// A leader gives way to a newer term, and to no other. Terms are compared whole: of two parts that lead under one
// number, the one with the higher id is the newer.
// A leader of a part (ElectionCore::Lead, without a majority) that was cut off while a block moved would bring back the
// processes that the move replaced: nobody who knows of the move turns to it. One that missed none is as good as any.
// Threads: none.
#pragma once

#include <optional>

#include "runtime/core/election.h"

namespace kintsugi::core {

// `obeyed`: the newest term of which an order was carried out.
bool MayObey(const ElectionCore& election, Term obeyed, Term term, TimePoint now);

struct Allegiance {
  Term obeyed;
  std::optional<Term> leading;  // this launcher hosts that controller
  std::optional<Term> follows;  // the controller that it is connected to, or tries to reach
  bool connected = false;       // welcomed there
  Placement placement;          // the newest that is known
};
struct LeadsAnswer {
  bool steps_down = false;  // the controller here has been replaced
  bool connects = false;    // to the controller that was named
};
struct LeadsNews {
  Term term;
  bool part = false;        // elected by no majority
  Placement placement;      // as the sender knows it
  bool same_place = false;  // it listens where the one does that is followed already
};
LeadsAnswer AnswerLeads(const ElectionCore& election, const Allegiance& mine, const LeadsNews& heard, TimePoint now);

}  // namespace kintsugi::core
