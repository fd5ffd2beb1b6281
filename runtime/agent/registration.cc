#include "runtime/agent/registration.h"

#include <algorithm>

#include "callbacks/state/mirrored.h"
#include "runtime/base/check.h"

namespace kintsugi {

Status Registration::AddTensor(const ShardedTensor& tensor) {
  KINTSUGI_RETURN_IF_ERROR(aliases_.CheckFree(tensor.key));
  return registry_.AddTensor(tensor);
}

Status Registration::AddObject(const ShardedObject& object) {
  KINTSUGI_RETURN_IF_ERROR(aliases_.CheckFree(object.key));
  return registry_.AddObject(object);
}

Status Registration::AddOwnObject(const ShardedObject& object) {
  KINTSUGI_RETURN_IF_ERROR(AddObject(object));
  own_objects_.push_back(object);
  return Status::Ok();
}

Result<core::GroupClaim> Registration::ClaimOf(int layout, const std::vector<Rank>& group, int replicas) const {
  const auto wrong = [layout](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "layout " + std::to_string(layout) + ": " + what);
  };
  const Rank self = self_.options.rank;
  if (layout < 0 || group.empty() || replicas < 1 || group.size() % static_cast<size_t>(replicas) != 0)
    return wrong(std::to_string(replicas) + " replicas do not divide a group of " + std::to_string(group.size()) +
                 " ranks");
  if (std::find(group.begin(), group.end(), self) == group.end())
    return wrong("rank " + self.ToString() + " is not in the group it names");
  std::vector<Rank> sorted = group;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return wrong("rank " + twice->ToString() + " is in its group twice");
  return core::GroupClaim{std::move(sorted), replicas};
}

Status Registration::SetLayout(int layout, const std::vector<Rank>& group, int replicas) {
  if (begun_)
    return {StatusCode::kFailedPrecondition, "layout " + std::to_string(layout) + " set after Agent::Run began"};
  KINTSUGI_ASSIGN_OR_RETURN(layouts_[layout], ClaimOf(layout, group, replicas));
  return Status::Ok();
}

Status Registration::SetOffer(const std::vector<Rank>& slice, const std::vector<int>& worlds) {
  const auto ascending = [](const auto& all) {
    return std::is_sorted(all.begin(), all.end()) && std::adjacent_find(all.begin(), all.end()) == all.end();
  };
  if (begun_) return {StatusCode::kFailedPrecondition, "worlds offered after Agent::Run began"};
  if (!ascending(slice) || !std::binary_search(slice.begin(), slice.end(), self_.options.rank))
    return {StatusCode::kInvalidArgument, "the slice of rank " + self_.options.rank.ToString() +
                                              " must be ascending, without repeats, with the rank in it"};
  if (worlds.empty() || !ascending(worlds) || worlds.front() < 1 || worlds.back() > self_.options.world_size)
    return {StatusCode::kInvalidArgument, "the worlds that are offered must be 1 to " +
                                              std::to_string(self_.options.world_size) +
                                              " ranks, ascending, without repeats"};
  offer_ = {slice, worlds};
  return Status::Ok();
}

Status Registration::SetOffer(const std::vector<int>& worlds) {
  KINTSUGI_RETURN_IF_ERROR(SetOffer({self_.options.rank}, worlds));
  offer_.any_layout = true;
  return Status::Ok();
}

Status Registration::SetHandsOverObjects() {
  if (begun_)
    return {StatusCode::kFailedPrecondition, "objects are handed over, which was said after Agent::Run began"};
  hands_over_objects_ = true;
  return Status::Ok();
}

core::Offer Registration::offer() const {
  core::Offer offer = offer_;
  if (offer.worlds.empty()) return offer;
  for (const auto& [key, object] : registry_.objects()) {
    const bool may_come =
        IsTakenFromAnybody(object.take_over) || (hands_over_objects_ && object.take_over == TakeOver::kOwn);
    if (offer.own_object.empty() && object.kind == ObjectKind::kMirrored && !may_come) offer.own_object = key;
  }
  return offer;
}

Status Registration::SetHandler(HandlerKind kind, HandlerFunction function, void* context) {
  if (begun_)
    return {StatusCode::kFailedPrecondition,
            "handler '" + std::string(HandlerKindName(kind)) + "' registered after Agent::Run began"};
  return handlers_.Register(kind, function, context);
}

Status Registration::SetStateService(std::shared_ptr<StateService> service) {
  if (begun_) return {StatusCode::kFailedPrecondition, "the state service was set after Agent::Run began"};
  service_ = std::move(service);
  return Status::Ok();
}

Status Registration::SetSnapshotService(std::shared_ptr<SnapshotService> service) {
  if (begun_) return {StatusCode::kFailedPrecondition, "the snapshot service was set after Agent::Run began"};
  snapshots_ = std::move(service);
  return Status::Ok();
}

Status Registration::SetGate(GateMode mode, GateFunction function, void* context) {
  if (begun_) return {StatusCode::kFailedPrecondition, "the gate was set after Agent::Run began"};
  if ((mode == GateMode::kTrainer) != (function != nullptr))
    return {StatusCode::kInvalidArgument, "a gate of the trainer's own needs a function, the other modes none"};
  gate_ = {mode, function, context};
  return Status::Ok();
}

Status Registration::AddFault(const std::string& pattern, FaultClass fault_class) {
  if (pattern.empty()) return {StatusCode::kInvalidArgument, "a fault pattern must not be empty: it would match all"};
  faults_.emplace_back(pattern, fault_class);
  return Status::Ok();
}

const FaultClass* Registration::FaultClassOf(const std::string& text) const {
  const auto found = std::find_if(faults_.begin(), faults_.end(),
                                  [&](const auto& fault) { return text.find(fault.first) != std::string::npos; });
  return found == faults_.end() ? nullptr : &found->second;
}

Status Registration::CheckHandlers() const {
  for (HandlerKind kind : {HandlerKind::kStop, HandlerKind::kClean, HandlerKind::kRebuildGroup})
    if (!handlers_.Has(kind))
      return {StatusCode::kFailedPrecondition,
              "no handler '" + std::string(HandlerKindName(kind)) + "' is registered: Agent::Run needs it"};
  for (const auto& [key, object] : registry_.objects())
    if (object.kind == ObjectKind::kDerived && !handlers_.Has(HandlerKind::kRollback))
      return {
          StatusCode::kFailedPrecondition,
          "object '" + key + "' is derived, but no handler 'rollback' is registered that computes it from the step"};
  return Status::Ok();
}

Status Registration::CheckState() const {
  if (begun_) return {StatusCode::kFailedPrecondition, "the guard was begun twice (Agent::Run, Agent::BeginGuard)"};
  KINTSUGI_RETURN_IF_ERROR(CheckLayouts(registry_, layouts_));
  if (offer_.any_layout) KINTSUGI_RETURN_IF_ERROR(CheckAnyLayout());
  for (const auto& [key, tensor] : registry_.tensors())
    if (service_) KINTSUGI_RETURN_IF_ERROR(registry_.DeviceOf(tensor).status());
  if (registry_.HasMirrored() && !service_)
    return {StatusCode::kFailedPrecondition, "mirrored objects need the state service: join through kintsugi::Join"};
  return Status::Ok();
}

// What is not carried along where state is cut anew.
Status Registration::CheckAnyLayout() const {
  const auto refused = [](const std::string& why) {
    return Status(StatusCode::kFailedPrecondition, "any layout is offered (OfferAnyLayout), " + why);
  };
  if (!service_) return refused("and nobody moves state: join through kintsugi::Join");
  for (const auto& [key, tensor] : registry_.tensors())
    if (tensor.memory.kind == MemoryKind::kDevice)
      return refused("and tensor '" + key + "' lies on a device: state in host memory alone is cut anew");
  return Status::Ok();
}

// What no layout holds would never be repaired, and nobody would notice.
Status Registration::CheckLayouts(const StateRegistry& registry, const std::map<int, core::GroupClaim>& layouts) {
  std::map<int, size_t> tensors;
  for (const auto& [key, tensor] : registry.tensors()) {
    ++tensors[tensor.layout];
    if (layouts.count(tensor.layout)) continue;
    std::string declared;
    for (const auto& [layout, claim] : layouts) declared += (declared.empty() ? "" : ", ") + std::to_string(layout);
    return {StatusCode::kFailedPrecondition,
            "tensor '" + key + "' is of layout " + std::to_string(tensor.layout) +
                ", which nobody declared: call SetReplicaLayout(" + std::to_string(tensor.layout) +
                ", group, replicas), with a group of this rank alone where no other holds it (declared: " +
                (declared.empty() ? "none" : declared) + ")"};
  }
  for (const auto& [layout, claim] : layouts)
    if (!tensors.count(layout) && !(registry.tensors().empty() && registry.HasMirrored()))
      return {
          StatusCode::kFailedPrecondition,
          "layout " + std::to_string(layout) + " was declared (SetReplicaLayout), but no registered tensor is of it"};
  return Status::Ok();
}

void Registration::Seal() {
  KINTSUGI_CHECK(!begun_, "what is registered is sealed before the guard begins");
  registry_.Seal();
}

void Registration::Begin() {
  KINTSUGI_CHECK((gate_.mode == GateMode::kTrainer) == (gate_.function != nullptr), "a gate without its function");
  KINTSUGI_CHECK(registry_.sealed(), "the guard begins with a registry that is sealed");
  KINTSUGI_CHECK(!begun_.exchange(true), "the guard begins once");
}

}  // namespace kintsugi
