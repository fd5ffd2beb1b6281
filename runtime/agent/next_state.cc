#include "runtime/agent/next_state.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/next_fate.h"

namespace kintsugi {
namespace {

bool Overlap(const Memory& a, const Memory& b) {
  const auto begin = [](const Memory& memory) { return reinterpret_cast<uintptr_t>(memory.data); };
  return begin(a) < begin(b) + b.size_bytes && begin(b) < begin(a) + a.size_bytes;
}

}  // namespace

Status NextState::Take(const CutState& state, Generation generation) {
  if (!registered_.offer().any_layout)
    return {StatusCode::kFailedPrecondition, "state is cut anew where any layout was offered (OfferAnyLayout)"};
  if (next_) return {StatusCode::kFailedPrecondition, "state was cut anew already in this task"};
  Next next{generation, {}, {}, {}};
  const StateRegistry& registry = registered_.registry();
  for (const ShardedTensor& tensor : state.tensors) {
    if (tensor.memory.kind == MemoryKind::kDevice)
      return {StatusCode::kInvalidArgument,
              "tensor '" + tensor.key + "' lies on a device: state in host memory alone is cut anew"};
    KINTSUGI_RETURN_IF_ERROR(next.registry.AddTensor(tensor));
    // What is there now is read until all is elsewhere.
    for (const auto& [key, held] : registry.tensors())
      if (Overlap(tensor.memory, held.memory))
        return {StatusCode::kInvalidArgument, "tensor '" + tensor.key + "' is to lie where '" + key +
                                                  "' lies now: what is cut anew has memory of its own"};
  }
  for (const auto& [alias, key] : state.aliases) KINTSUGI_RETURN_IF_ERROR(next.aliases.Add(alias, key, next.registry));
  for (const auto& [alias, key] : registered_.aliases().all())
    if (next.registry.tensors().count(key) && !next.aliases.all().count(alias))
      return {StatusCode::kInvalidArgument, "alias '" + alias + "' of tensor '" + key +
                                                "' is gone: names stay where state is cut anew (CutState::aliases)"};
  for (const ShardedObject& object : state.objects) KINTSUGI_RETURN_IF_ERROR(next.registry.AddObject(object));
  for (const ShardedObject& own : registered_.own_objects())
    if (!next.registry.objects().count(own.key)) KINTSUGI_RETURN_IF_ERROR(next.registry.AddObject(own));
  for (const auto& [key, object] : registry.objects()) {
    const auto found = next.registry.objects().find(key);
    if (found == next.registry.objects().end() || found->second.kind != object.kind ||
        found->second.take_over != object.take_over)
      return {StatusCode::kInvalidArgument,
              "object '" + key + "' is not what it was, or is gone: objects stay where state is cut anew"};
  }
  if (next.registry.objects().size() != registry.objects().size())
    return {StatusCode::kInvalidArgument, "objects come that were not registered: they stay where state is cut anew"};
  for (const CutState::Layout& layout : state.layouts) {
    KINTSUGI_ASSIGN_OR_RETURN(next.layouts[layout.layout],
                              registered_.ClaimOf(layout.layout, layout.group, layout.replicas));
  }
  KINTSUGI_RETURN_IF_ERROR(Registration::CheckLayouts(next.registry, next.layouts));
  next.registry.Seal();
  next_.emplace(std::move(next));
  registered_.service()->SetNext(&next_->registry);
  return Status::Ok();
}

std::optional<core::Registered> NextState::Told() const {
  if (!next_) return std::nullopt;
  return core::Registered{next_->registry.Summary(), next_->layouts};
}

void NextState::Settle(const core::RunOnTrainer& run) {
  if (!next_) return;
  switch (core::SettleNext(next_->generation, run.generation, run.order)) {
    case core::NextFate::kKept:
      return Keep();
    case core::NextFate::kDropped:
      return Drop();
    case core::NextFate::kUsed:
      return Use();
    case core::NextFate::kWaits:
      return;
  }
}

void NextState::Use() {
  if (std::exchange(used_, true)) return;
  registered_.service()->AwaitQuiet();
  Swap();
  registered_.service()->SetNext(nullptr);
}

void NextState::Swap() {
  addresses_.Swap(&next_->registry);
  registered_.Swap(&next_->layouts, &next_->aliases);
}

// The launcher holds what was there before until here, and what is there now from here on.
void NextState::Keep() {
  if (!next_) return;
  Use();
  (void)offer_.Withdraw();
  offer_.Offer();
  relocations_.TellReady();
  Forget();
}

void NextState::Drop() {
  if (used_) Swap();
  registered_.service()->SetNext(nullptr);
  Forget();
}

void NextState::Forget() {
  const Next gone = *std::exchange(next_, std::nullopt);
  used_ = false;
  offer_.keeper().Release(gone.registry);
}

}  // namespace kintsugi
