#include "runtime/core/election.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// A connection that broke may be mended at once.
constexpr Duration kStandAfter = std::chrono::milliseconds(200);
constexpr Duration kTurn = std::chrono::milliseconds(150);
constexpr int kTurns = 8;
constexpr Duration kRound = std::chrono::milliseconds(600);
constexpr Duration kAskEvery = std::chrono::milliseconds(100);

}  // namespace

// How much later than the lowest node this one stands.
Duration ElectionCore::Turn() const { return (options_.turn.value_or(options_.self) % kTurns) * kTurn; }

void ElectionCore::Follow(uint64_t term) {
  following_ = ever_followed_ = true;
  followed_ = std::max(followed_, term);
  leads_ = is_candidate_ = false;
  if (term > promised_) promised_to_ = -1;
  promised_ = std::max(promised_, term);
}

bool ElectionCore::MayFollow(uint64_t term, TimePoint now) const {
  if (term >= promised_) return true;
  return !leads_ && term >= followed_ && (promised_to_ == options_.self || now - promised_at_ >= kRound);
}

void ElectionCore::Lose(TimePoint now) {
  if (!following_) return;
  following_ = false;
  lost_at_ = now;
  stand_at_ = now + kStandAfter + Turn();
}

void ElectionCore::StepDown(uint64_t term, TimePoint now) {
  leads_ = false;
  if (term > promised_) {
    promised_ = term;
    promised_to_ = -1;
    is_candidate_ = false;
  }
  following_ = true;
  Lose(now);
}

bool ElectionCore::OnRequest(int from, uint64_t term, TimePoint now) {
  if (following_ || leads_ || term < promised_) return false;
  if (term == promised_) return promised_to_ == from;
  promised_ = term;
  promised_to_ = from;
  promised_at_ = now;
  is_candidate_ = false;
  stand_at_ = now + kRound + Turn();
  return true;
}

ElectionCore::Decision ElectionCore::MaybeLead(TimePoint now) {
  KINTSUGI_CHECK(
      is_candidate_ && promised_to_ == options_.self && promised_ > followed_,
      "votes are counted for term " + std::to_string(promised_) + ", and this launcher does not stand for it");
  std::vector<Ballot> votes(static_cast<size_t>(options_.world_size), Ballot::kUnknown);
  const auto count = [&](int node, const std::vector<Rank>& ranks, Ballot vote) {
    for (Rank rank : ranks) {
      if (rank.value() < 0 || rank.value() >= options_.world_size) continue;
      if (options_.local_ranks > 0 && placement_.NodeOf(rank.value() / options_.local_ranks) != node) continue;
      votes[static_cast<size_t>(rank.value())] = vote;
    }
  };
  for (const auto& [node, ranks] : votes_) {
    count(node, ranks.ended, ranks.newcomer ? Ballot::kForgotten : Ballot::kEnded);
    count(node, ranks.live, ranks.newcomer ? Ballot::kForgotten : Ballot::kLive);
  }
  const Consent consent = ConsentOf(votes, tie_rule_);
  const bool ask = consent == Consent::kAskWitness;
  if (consent == Consent::kNo || (ask && now >= word_until_))
    return {.ask = {}, .lead = {}, .give_up = false, .ask_witness = ask};
  leads_ = true;
  is_candidate_ = false;
  return {.ask = {}, .lead = Lead{promised_, true}};
}

ElectionCore::Decision ElectionCore::OnVote(int from, uint64_t term, const LocalRanks& ranks) {
  if (!is_candidate_ || term != promised_) return {};
  votes_[from] = ranks;
  return MaybeLead(TimePoint::Max());
}

ElectionCore::Decision ElectionCore::OnTick(TimePoint now, const LocalRanks& own) {
  KINTSUGI_CHECK(!is_candidate_ || !(following_ || leads_), "a launcher stands for election and has a leader");
  if (following_ || leads_ || !ever_followed_) return {};
  if (now - lost_at_ >= patience_) {
    if (!has_ranks_) return {.ask = {}, .lead = {}, .give_up = true};
    leads_ = true;
    is_candidate_ = false;
    promised_to_ = options_.self;
    return {.ask = {}, .lead = Lead{++promised_, false}};
  }
  if (is_candidate_ && now >= round_ends_) {
    is_candidate_ = false;
    stand_at_ = now + Turn();
  }
  if (!is_candidate_ && now >= stand_at_) {
    is_candidate_ = true;
    ++promised_;
    promised_to_ = options_.self;
    votes_.clear();
    ask_at_ = now;
    round_ends_ = now + kRound + Turn();
  }
  if (!is_candidate_) return {};
  votes_[options_.self] = own;
  Decision decision = MaybeLead(now);
  if (decision.lead || now < ask_at_) return decision;
  ask_at_ = now + kAskEvery;
  decision.ask = Ask{promised_};
  return decision;
}

}  // namespace kintsugi::core
