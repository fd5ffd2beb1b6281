#include "runtime/agent/state_offer.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

void StateOffer::Begin() {
  KINTSUGI_CHECK(registered_.registry().sealed() && !registered_.begun(), "state is offered first as the guard begins");
  has_mirrored_ = registered_.registry().HasMirrored();
  KINTSUGI_CHECK(!has_mirrored_ || registered_.service(), "mirrored objects without a state service");
  if (self_.options.state_fd >= 0) keeper_.Open(UniqueFd(self_.options.state_fd));
  Offer();
}

void StateOffer::Offer() {
  if (self_.options.state_fd < 0) return;  // no launcher, or one that holds nothing
  const std::string why = keeper_.Offer(has_mirrored_);
  held_ = why.empty();
  if (!held_) warning_ = "when its process is lost its state cannot be adopted, all of it will be streamed: " + why;
}

Status StateOffer::Mirror(Step step, const MirroredObjects& objects) {
  KINTSUGI_CHECK(has_mirrored_, "objects are mirrored that nobody registered");
  StateService& service = *registered_.service();
  KINTSUGI_RETURN_IF_ERROR(service.Mirror(step, objects));
  ahead_at_.reset();
  if (keeper_.keeps_objects()) keeper_.KeepObjects(step, service.KnownMirrored(step));
  return Status::Ok();
}

void StateOffer::Refresh(Step step, const MirroredObjects& objects) {
  KINTSUGI_CHECK(has_mirrored_, "objects are refreshed that nobody registered");
  StateService& service = *registered_.service();
  service.Refresh(step, objects);
  ahead_at_ = step;
  if (keeper_.keeps_objects()) keeper_.KeepObjects(step, service.KnownMirrored(step), /*ahead=*/true);
}

Status StateOffer::Prepare(const core::PhaseOrder& order) {
  // Where state is cut anew what is offered is what was registered before, which nobody writes: the step's, but from a snapshot.
  if (order.phase == core::Phase::kRollback && (!order.relayout || order.from_snapshot))
    page_.Mark(core::StateMark::kWriting);
  if (order.phase != core::Phase::kRepair) return Status::Ok();
  bool adopts = false, receives = order.rung == Rung::kReload;
  for (const RepairMove& move : order.moves)
    if (move.destination == self_.options.rank) (move.adopt ? adopts : receives) = true;
  if (order.relayout) receives = !std::binary_search(order.holders.begin(), order.holders.end(), self_.options.rank);
  if (receives) page_.Mark(core::StateMark::kWriting);
  if (!adopts) return Status::Ok();
  if (!has_mirrored_) return keeper_.Adopt(order.step, nullptr);
  KINTSUGI_RETURN_IF_ERROR(keeper_.Adopt(order.step, [&](std::vector<RankObjects> known) {
    registered_.service()->TakeMirrored(order.step, std::move(known));
  }));
  if (keeper_.IsAhead(order.step)) ahead_at_ = order.step;
  return Status::Ok();
}

}  // namespace kintsugi
