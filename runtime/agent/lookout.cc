#include "runtime/agent/lookout.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/core/hang_detector.h"

namespace kintsugi {
namespace {

// So long Python may take to give its lock away, and to write a traceback.
constexpr Duration kLookFor = std::chrono::milliseconds(250);

core::CollectiveMark MarkOf(const CollectiveMarks::Mark& kept, uint64_t now_ns) {
  core::CollectiveMark mark;
  mark.number = kept.number;
  mark.kind = kept.call.kind;
  mark.type = kept.call.type;
  mark.operation = kept.call.operation;
  mark.root = Rank(kept.call.root);
  mark.size = kept.call.size;
  mark.parts = kept.call.parts;
  mark.order = kept.order;
  mark.end = kept.left_ns == 0 ? core::CollectiveEnd::kOpen : kept.failed ? core::CollectiveEnd::kFailed : core::CollectiveEnd::kDone;
  mark.waited = kept.waited;
  mark.entered = Duration(static_cast<int64_t>(now_ns - std::min(kept.entered_ns, now_ns)));
  return mark;
}

}  // namespace

std::vector<core::GroupMarks> GroupMarksOf(const CollectiveMarks& marks, Rank rank, TimePoint now) {
  std::vector<core::GroupMarks> groups;
  for (const CollectiveMarks::GroupView& view : marks.Read()) {
    if (view.own_rank != rank.value()) continue;
    core::GroupMarks group;
    group.name = view.name;
    for (const int32_t member : view.ranks) group.ranks.push_back(Rank(std::max(0, member)));
    group.entered = view.entered;
    for (const CollectiveMarks::Mark& mark : view.newest)
      group.newest.push_back(MarkOf(mark, static_cast<uint64_t>(now.nanoseconds())));
    groups.push_back(std::move(group));
  }
  return groups;
}

void Lookout::Look(uint64_t round) {
  core::RankMarks marks;
  marks.round = round;
  // Who has come to its gate waits there for others, also where its word does not say so yet: partners exchange their
  // mirrored objects before.
  const uint64_t progress = page_.words().progress.load(std::memory_order_relaxed);
  marks.place = UnpackProgress(progress);
  if (marks.place.phase != TrainPhase::kGate) marks.place = core::PlaceOf(progress, gate_.Word());
  marks.groups = GroupMarksOf(CollectiveMarks::OfProcess(), self_.options.rank, SteadyClock::SteadyNow());
  reader_.emplace(getpid(), CollectiveMarks::OfProcess().memory());
  reader_->Begin();
  timer_.expires_after(kLookFor);
  timer_.async_wait([this, marks = std::move(marks)](const boost::system::error_code& error) mutable {
    if (!error && !inbox_.ending()) Answer(std::move(marks));
  });
}

void Lookout::Answer(core::RankMarks marks) {
  ProcessStand stand = reader_->Read();
  marks.stand = {std::move(stand.at), std::move(stand.call), std::move(stand.state), stand.python_stopped, std::move(stand.stack)};
  if (thread_.has_core()) thread_.Step(core::MarksTaken{std::move(marks)});
}

}  // namespace kintsugi
