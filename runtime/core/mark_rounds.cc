#include "runtime/core/mark_rounds.h"

#include <algorithm>
#include <utility>

namespace kintsugi::core {
namespace {

// An agent looks for a quarter of a second at where its trainer stands.
constexpr Duration kRoundLimit = std::chrono::milliseconds(800);
// Where something broke, ranks have more to do than to answer, and nobody waits for what is said of it.
constexpr Duration kBrokenRoundLimit = std::chrono::seconds(3);
// Answers are taken at different instants: who has waited for less than that may meet the others yet.
constexpr Duration kLeastWait = std::chrono::milliseconds(500);
// Agents beat every 50 ms.
constexpr Duration kSilentFor = std::chrono::milliseconds(500);

}  // namespace

void MarkRounds::Ask(Duration still, bool waits, std::optional<Rank> gone) {
  Question question;
  question.about.waits = waits;
  question.about.least = waits ? std::min(kLeastWait, still / 2) : Duration();
  question.until = board_.now() + (waits ? kRoundLimit : kBrokenRoundLimit);
  ++round_;
  for (Rank rank : board_.members.ranks()) {
    const Member& member = board_.At(rank);
    RankSaid said{.rank = rank, .marks = {}, .finished = member.finished, .parked = member.save_point.has_value()};
    if (member.life != Life::kDead && member.connected && rank != gone) {
      question.expected[rank] = question.about.ranks.size();
      question.asked[rank] = member.incarnation;
      board_.SendTo(rank, AskMarks{round_});
    }
    question.about.ranks.push_back(std::move(said));
  }
  question_ = std::move(question);
}

void MarkRounds::OnMarks(Rank rank, const RankMarks& marks) {
  if (!question_ || marks.round != round_) return;
  const auto found = question_->expected.find(rank);
  if (found == question_->expected.end()) return;
  question_->about.ranks[found->second].marks = marks;
  question_->expected.erase(found);
}

std::optional<Blame> MarkRounds::Take() {
  // Of a process that has gone meanwhile nothing comes any more.
  if (question_)
    std::erase_if(question_->expected, [this](const auto& one) {
      const Member& member = board_.At(one.first);
      return member.life == Life::kDead || !member.connected || member.incarnation != question_->asked.at(one.first);
    });
  if (!question_ || (!question_->expected.empty() && board_.now() < question_->until)) return std::nullopt;
  for (const auto& [rank, at] : question_->expected)
    question_->about.ranks[at].silent = processes_.SinceBeat(rank).value_or(Duration()) >= kSilentFor;
  return FindBlame(std::exchange(question_, std::nullopt)->about);
}

}  // namespace kintsugi::core
