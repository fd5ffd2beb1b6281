#include "runtime/core/allegiance.h"

namespace kintsugi::core {

bool MayObey(const ElectionCore& election, Term obeyed, Term term, TimePoint now) {
  return term >= obeyed && election.MayFollow(term.number, now);
}

LeadsAnswer AnswerLeads(const ElectionCore& election, const Allegiance& mine, Term term, bool same_place,
                        TimePoint now) {
  if (!MayObey(election, mine.obeyed, term, now)) return {};
  LeadsAnswer answer;
  answer.steps_down = mine.leading && term > *mine.leading;
  if (mine.leading && !answer.steps_down) return answer;
  const bool known = mine.follows && term <= *mine.follows && (mine.linked || same_place);
  answer.links = !known;
  return answer;
}

}  // namespace kintsugi::core
