#include "runtime/core/allegiance.h"

namespace kintsugi::core {

bool MayObey(const ElectionCore& election, Term obeyed, Term term, TimePoint now) {
  return term >= obeyed && election.MayFollow(term.number, now);
}

LeadsAnswer AnswerLeads(const ElectionCore& election, const Allegiance& mine, const LeadsNews& heard, TimePoint now) {
  if (!MayObey(election, mine.obeyed, heard.term, now)) return {};
  const bool missed_moves =
      heard.placement.version() < mine.placement.version() && heard.placement.moved() != mine.placement.moved();
  if (heard.part && missed_moves) return {};
  LeadsAnswer answer;
  answer.steps_down = mine.leading && heard.term > *mine.leading;
  if (mine.leading && !answer.steps_down) return answer;
  const bool known = mine.follows && heard.term <= *mine.follows && (mine.connected || heard.same_place);
  answer.connects = !known;
  return answer;
}

}  // namespace kintsugi::core
