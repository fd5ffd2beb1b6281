#include "runtime/core/majority.h"

#include "runtime/base/check.h"

namespace kintsugi::core {

namespace {

std::vector<Ballot> VotesOf(const Roster& members) {
  std::vector<Ballot> votes;
  votes.reserve(members.seats());
  for (const Member& member : members.all()) {
    const bool votes_itself = member.life == Life::kReady && !member.trust.fresh();
    votes.push_back(votes_itself                               ? Ballot::kLive
                    : member.unconfirmed || member.left_behind ? Ballot::kUnknown
                    : member.forgotten                         ? Ballot::kForgotten
                                                               : Ballot::kEnded);
  }
  return votes;
}

}  // namespace

Consent Majority::Count(const Roster& members) const { return ConsentOf(VotesOf(members), rule_); }

bool Majority::HasWithout(const Roster& members, const Crew& crew, TimePoint now) const {
  if (!needed_) return true;
  std::vector<Ballot> votes = VotesOf(members);
  for (size_t r = 0; r < votes.size(); ++r)
    if (votes[r] == Ballot::kLive && !crew.Has(Rank(static_cast<int32_t>(r)))) votes[r] = Ballot::kUnknown;
  return Suffices(ConsentOf(votes, rule_), now);
}

bool Majority::Suffices(Consent consent, TimePoint now) const {
  return consent == Consent::kYes || (consent == Consent::kAskWitness && now < word_until_);
}

bool Majority::Has(const Roster& members, TimePoint now) const {
  if (!needed_) return true;
  return Suffices(Count(members), now);
}

bool Majority::MayGoOn(const Roster& members, TimePoint now) {
  if (!minority_ && !Has(members, now)) return false;
  by_word_ = !minority_ && needed_ && Count(members) == Consent::kAskWitness;
  part_ = part_ && minority_;
  return true;
}

bool Majority::Await(TimePoint now) {
  KINTSUGI_CHECK(needed_ && !minority_, "a majority is waited for that nobody needs");
  if (until_ != TimePoint::Max()) return false;
  until_ = now + wait();
  return true;
}

void Majority::GiveUp() {
  KINTSUGI_CHECK(needed_ && until_ != TimePoint::Max(), "a majority is given up that was not waited for");
  minority_ = true;
}

bool Majority::LostWord(const Roster& members, TimePoint now) {
  if (!by_word_ || Has(members, now)) return false;
  by_word_ = false;
  return true;
}

void Majority::OnPhase(Phase to) {
  if (to == Phase::kLock || to == Phase::kRunning || to == Phase::kEnded) by_word_ = false;
  if (to == Phase::kRunning) part_ = false;
}

}  // namespace kintsugi::core
