#include "runtime/launcher/leader/even_splits.h"

#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

EvenSplits::EvenSplits(Controller& controller, const RunAccount& account, core::TieRule own, std::optional<int> voters)
    : controller_(controller), account_(account), rule_(own) {
  KINTSUGI_CHECK(!voters || *voters > 0, "nobody votes");
  if (voters) ties_.emplace(*voters, own);
}

void EvenSplits::OnStarted() {
  KINTSUGI_CHECK(account_.started(), "the controller is told before it has begun");
  if (ties_) controller_.Feed(core::TieRuleTaken{rule_});
}

void EvenSplits::Take(core::TieRule rule) {
  rule_ = rule;
  if (goes_on()) controller_.Feed(core::TieRuleTaken{rule});
}

void EvenSplits::TakeWord(TimePoint until) {
  if (goes_on()) controller_.Feed(core::WitnessWord{until});
}

bool EvenSplits::Want(std::optional<core::TieRule> wanted) {
  if (!ties_) return false;
  const core::TieRule before = ties_->order().rule;
  return ties_->Decide(wanted).rule != before;
}

void EvenSplits::SetVoters(std::set<int> voters) {
  KINTSUGI_CHECK(!voters.empty(), "nobody votes");
  if (ties_) ties_->SetVoters(std::move(voters));
}

void EvenSplits::OnAway(int node) {
  if (ties_) ties_->OnAway(node);
}

void EvenSplits::OnTaken(int node, uint64_t number) {
  if (ties_) ties_->OnTaken(node, number);
}

}  // namespace kintsugi
