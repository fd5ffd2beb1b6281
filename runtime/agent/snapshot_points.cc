#include "runtime/agent/snapshot_points.h"

#include <string>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

void SnapshotPoints::Arm(const core::ArmSnapshot& arm) {
  const SnapshotOrder& order = arm.order;
  const Rank self = self_.options.rank;
  const auto refuse = [&](StatusCode code, const std::string& why) {
    Tell(arm.generation, {.owner = self, .step = order.step, .code = code, .text = why, .digests = {}});
  };
  SnapshotService* const service = registered_.begun() ? registered_.snapshots().get() : nullptr;
  if (!service)
    return refuse(StatusCode::kFailedPrecondition,
                  "rank " + self.ToString() + " has no snapshot service: join through kintsugi::Join");
  SnapshotService::Session session;
  session.generation = arm.generation;
  session.self = self;
  session.store = store_.Of(arm.generation);
  session.limit = std::chrono::seconds(60);
  session.unchanged = [this](Step step) { return gate_.StillAt(step); };
  session.settled = [this] { return gate_.IsSettled(); };
  session.report = [this, generation = arm.generation](SnapshotReport report) {
    thread_.Call([this, generation, report = std::move(report)] { Tell(generation, report); });
  };
  service->Prepare(session, order);
  due_.store(order.step.value(), std::memory_order_seq_cst);
  const Step begun = page_.begun();
  uint64_t due = order.step.value();
  if (begun > order.step && due_.compare_exchange_strong(due, 0))
    refuse(StatusCode::kUnavailable, "the order came when step " + begun.ToString() + " had begun");
}

void SnapshotPoints::Tell(Generation generation, SnapshotReport report) {
  report.begun = page_.begun();
  thread_.Step(core::SnapshotCopied{generation, std::move(report)});
}

void SnapshotPoints::Abort() {
  due_.store(0, std::memory_order_seq_cst);
  if (registered_.begun() && registered_.snapshots()) registered_.snapshots()->Abort();
}

void SnapshotPoints::Take(Step boundary) {
  uint64_t due = boundary.value();
  if (!due_.compare_exchange_strong(due, 0)) return;
  KINTSUGI_CHECK(registered_.snapshots(), "a snapshot is due that nobody can take");
  registered_.snapshots()->Take(boundary);
}

}  // namespace kintsugi
