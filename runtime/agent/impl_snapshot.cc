// In-memory snapshots: the order comes on the agent's thread, the trainer's passes the boundary, the service copies on
// threads of its own. None of them waits for another.
//
// An order and the boundary it names may cross each other. Both sides write first and look then (the trainer its
// progress, the agent the order), so that at least one of them sees the other, and one exchange decides who answers.
#include <boost/asio/post.hpp>

#include "runtime/agent/impl.h"

namespace kintsugi {

using core::GateState;
using core::GateWord;

void Agent::Impl::ArmSnapshot(const core::ArmSnapshot& arm) {
  const SnapshotOrder& order = arm.order;
  const auto refuse = [&](StatusCode code, const std::string& why) {
    TellOfSnapshot(arm.generation,
                   {.owner = options_.rank, .step = order.step, .code = code, .text = why, .digests = {}});
  };
  if (!snapshots_ || !running_)
    return refuse(StatusCode::kFailedPrecondition, "rank " + options_.rank.ToString() +
                                                       " has no snapshot service: join through kintsugi::Join, or "
                                                       "SetSnapshotService");
  SnapshotService::Session session;
  session.generation = arm.generation;
  session.self = options_.rank;
  session.store = store_.Of(arm.generation);
  session.limit = std::chrono::seconds(60);
  session.unchanged = [this](Step step) { return StillAt(step); };
  session.settled = [this] { return IsSettled(); };
  session.report = [this, generation = arm.generation](SnapshotReport report) {
    boost::asio::post(io_, [this, generation, report = std::move(report)] { TellOfSnapshot(generation, report); });
  };
  snapshots_->Prepare(session, order);
  snapshot_at_.store(order.step.value(), std::memory_order_seq_cst);
  const uint64_t begun = UnpackProgress(words().progress.load(std::memory_order_seq_cst)).step;
  uint64_t due = order.step.value();
  if (begun > due && snapshot_at_.compare_exchange_strong(due, 0))
    refuse(StatusCode::kUnavailable, "the order came when step " + std::to_string(begun) + " had begun");
}

void Agent::Impl::TellOfSnapshot(Generation generation, SnapshotReport report) {
  report.begun = Step(UnpackProgress(words().progress.load(std::memory_order_seq_cst)).step);
  Step_(core::SnapshotCopied{generation, std::move(report)});
}

void Agent::Impl::AbortSnapshot() {
  snapshot_at_.store(0, std::memory_order_seq_cst);
  if (snapshots_ && running_) snapshots_->Abort();
}

bool Agent::Impl::StillAt(Step step) const {
  const GateWord now = Word();
  return !now.locked && ((now.state == GateState::kCommitted && now.step == step) ||
                         (now.state == GateState::kAtGate && now.step == step.Next()));
}

// Trainer's thread.
void Agent::Impl::TakeSnapshot(Step boundary) {
  uint64_t due = boundary.value();
  if (snapshot_at_.compare_exchange_strong(due, 0)) snapshots_->Take(boundary);
}

}  // namespace kintsugi
