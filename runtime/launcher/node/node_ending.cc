#include "runtime/launcher/node/node_ending.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/launcher/leader/node_parts.h"

namespace kintsugi {
namespace {

constexpr Duration kLastTurn = std::chrono::milliseconds(20);
// Of the grace period so much is for a leader to be found; the rest is for saving.
constexpr int kToElect = 4;

}  // namespace

NodeEnding::NodeEnding(boost::asio::io_context& io, NodeState& state, WorkerPool& pool, LeaderConnection& to_leader,
                       const RetainedReports& retained, NodeReporter& reporter, LocalLeader& local_leader)
    : io_(io),
      state_(state),
      pool_(pool),
      to_leader_(to_leader),
      retained_(retained),
      reporter_(reporter),
      local_leader_(local_leader),
      leave_(io),
      stop_end_(io) {}

void NodeEnding::Fail(Status why) {
  KINTSUGI_CHECK(!why.ok(), "a node fails for no reason");
  state_.failed = std::move(why);
  EndNow(core::kExitStartup, state_.failed.message());
}

void NodeEnding::AskToStop() {
  to_leader_.Tell(wire::NodeStop{});
  if (state_.stop_asked) return;
  state_.stop_asked = SteadyClock::SteadyNow();
  state_.election.Hurry(state_.run().policy.grace / kToElect);
  stop_end_.expires_after(state_.run().policy.grace);
  stop_end_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !state_.ended) EndNow(core::kExitFailed, "the grace period was over, and the run had not ended");
  });
}

void NodeEnding::End(const wire::NodeEnd& end) {
  if (state_.ended) return;
  if (end.awaits_ends) return AwaitEnds();
  state_.ended = NodeResult{end.exit_code, end.text, end.asked, std::nullopt};
  pool_.Leave();
  pool_.Poll();
  reporter_.RetellReports(retained_.size());
  leave_.expires_after(LeaveLimit(state_.stop_asked, state_.run().policy.grace));
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (!error) EndNow(state_.ended->exit_code, state_.ended->text);
  });
  OnLeft();
}

void NodeEnding::AwaitEnds() {
  state_.loops_over = true;
  pool_.Leave();
  pool_.Poll();
  reporter_.RetellReports(retained_.size());
  reporter_.TellEnds();
}

void NodeEnding::EndNow(int exit_code, const std::string& why) {
  if (!state_.ended) state_.ended = NodeResult{exit_code, why, false, std::nullopt};
  pool_.Leave();
  pool_.KillAll();
  if (local_leader_.leads()) local_leader_.leader()->EndNow(why);
  io_.stop();
}

void NodeEnding::OnLeft() {
  if (!state_.ended || pool_.running()) return;
  leave_.expires_after(kLastTurn);
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    reporter_.TellPages();
    // What is queued is sent; OnDisconnected ends, or the leader once all have left.
    to_leader_.connected() ? to_leader_.Close() : StopUnlessLeading();
  });
}

void NodeEnding::OnLeaderDone() {
  if (!state_.ended || !pool_.running()) io_.stop();
}

void NodeEnding::OnDisconnected() {
  KINTSUGI_CHECK(state_.ended.has_value(), "a node leaves that has not ended");
  if (!pool_.running()) StopUnlessLeading();
}

void NodeEnding::OnUnreachable() {
  KINTSUGI_CHECK(state_.ended.has_value(), "a node leaves that has not ended");
  StopUnlessLeading();
}

void NodeEnding::StopUnlessLeading() {
  if (!local_leader_.leads()) io_.stop();
}

}  // namespace kintsugi
