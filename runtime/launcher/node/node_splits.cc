#include "runtime/launcher/node/node_splits.h"

#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

NodeSplits::NodeSplits(boost::asio::io_context& io, NodeState& state, std::function<void(TimePoint)> on_word)
    : state_(state) {
  if (state_.run().witness.empty()) return;
  witness_ = std::make_unique<Witness>(io, state_.run().witness, state_.log, std::move(on_word));
  rule_ = core::TieRule::kNobody;  // until the leader says otherwise
  state_.election.SetTieRule(rule_);
}

NodeSplits::Taken NodeSplits::Take(const core::TieOrder& order) {
  if (!witness_ || order.number <= order_) return {};
  order_ = order.number;
  if (order.rule == rule_) return {.news = true};
  rule_ = order.rule;
  state_.election.SetTieRule(rule_);
  return {.news = true, .changed = true};
}

std::optional<core::TieRule> NodeSplits::Poll(bool leads, bool over) {
  KINTSUGI_CHECK(leads || !over, "the run has ended for all, by the word of nobody");
  if (!witness_) return std::nullopt;
  const bool goes_on = !state_.ended;
  witness_->Poll(
      {state_.run_id, state_.self.name(), state_.pulse.generation, lease_wanted_ && goes_on, leads && goes_on, over});
  const std::optional<bool> reachable = witness_->reachable();
  if (!leads || !reachable) return std::nullopt;
  return *reachable ? core::TieRule::kWitness : core::TieRule::kLowestRank;
}

}  // namespace kintsugi
