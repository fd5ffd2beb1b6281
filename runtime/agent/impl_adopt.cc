// State that outlives the process: what lies in memory files is offered to the launcher, and what the process before
// this one left there is put in place of this one's (rung adopt). All on the trainer's thread.
#include <algorithm>
#include <string>

#include "kernels/host_checksum.h"
#include "runtime/agent/impl.h"

namespace kintsugi {
namespace {

constexpr Duration kAnswerLimit = std::chrono::seconds(10);

}  // namespace

// What lies where: equal for two processes that registered the same state in the same allocations. Nothing: some tensor
// lies elsewhere, and would be lost with the process.
std::optional<uint64_t> Agent::Impl::StateShape() const {
  std::string shape;
  const auto add = [&](uint64_t number) { shape += std::to_string(number) + ' '; };
  for (const SharedMemory& state : state_memory_) add(state.memory().size_bytes);
  for (const auto& [key, tensor] : registry_.tensors()) {
    const auto home = std::find_if(state_memory_.begin(), state_memory_.end(), [&](const SharedMemory& state) {
      return state.memory().shared_fd == tensor.memory.shared_fd;
    });
    if (tensor.memory.kind != MemoryKind::kShared || home == state_memory_.end()) return std::nullopt;
    shape += key + '\n';
    add(static_cast<uint64_t>(home - state_memory_.begin()));
    add(tensor.memory.shared_offset);
    add(tensor.memory.size_bytes);
  }
  return HashBytes(shape.data(), shape.size());
}

// Which tensors no launcher can hold; one of them is enough.
std::string Agent::Impl::OutsideMemory() const {
  constexpr size_t kNamed = 4;
  std::string named;
  size_t count = 0;
  for (const auto& [key, tensor] : registry_.tensors()) {
    const bool inside = std::any_of(
        state_memory_.begin(), state_memory_.end(),
        [&t = tensor](const SharedMemory& state) { return state.memory().shared_fd == t.memory.shared_fd; });
    if (tensor.memory.kind == MemoryKind::kShared && inside) continue;
    if (++count <= kNamed) named += (count > 1 ? ", '" : "'") + key + "'";
  }
  if (count == 0) return "no tensor is registered";
  if (count > kNamed) named += " and " + std::to_string(count - kNamed) + " more";
  return "tensor" + std::string(count > 1 ? "s " : " ") + named + " of " + std::to_string(registry_.tensors().size()) +
         " outside of Agent::AllocateState";
}

void Agent::Impl::OfferState() {
  if (options_.state_fd < 0) return;  // no launcher, or one that holds nothing
  const std::optional<uint64_t> shape = StateShape();
  state_channel_.emplace(UniqueFd(options_.state_fd));
  const auto without = [this](const std::string& why) {
    log_->Write(LogLevel::kWarning, LogLine("state_not_held", {{"why", why}}));
    warning_ = "when its process is lost its state cannot be adopted, all of it will be streamed: " + why;
    state_channel_.reset();
  };
  if (!shape || state_memory_.empty()) return without(OutsideMemory());
  std::vector<int> files;
  for (const SharedMemory& state : state_memory_) files.push_back(state.memory().shared_fd);
  if (const Status offered = state_channel_->Send(StateWord::kTensors, *shape, files); !offered.ok())
    return without(offered.message());
  if (!has_mirrored_) return;
  Result<ObjectSlots> slots = ObjectSlots::Create(0);
  if (!slots.ok()) return without(slots.status().message());
  object_slots_.emplace(std::move(slots).value());
  if (const Status offered = state_channel_->Send(StateWord::kObjects, 0, {object_slots_->fd()}); !offered.ok())
    without(offered.message());
}

// With those of the partners: whoever goes on here must be able to give them theirs back.
void Agent::Impl::KeepObjects(Step step) {
  if (!object_slots_ || !state_channel_) return;
  const Result<bool> grown = object_slots_->Write(step, service_->PackMirrored(step));
  Status kept = grown.status();
  if (grown.ok() && *grown) kept = state_channel_->Send(StateWord::kObjects, 0, {object_slots_->fd()});
  if (kept.ok()) return;
  // Better nothing than tensors without their objects.
  log_->Write(LogLevel::kWarning, LogLine("state_not_held", {{"why", kept.message()}}));
  (void)state_channel_->Send(StateWord::kTensors, 0, {});
  state_channel_.reset();
}

Status Agent::Impl::AdoptState(Step step) {
  if (adopted_) return Status::Ok();  // in an earlier attempt
  const std::optional<uint64_t> shape = StateShape();
  if (!state_channel_ || !shape)
    return {StatusCode::kFailedPrecondition, "told to adopt the state of the process before, without memory for it"};
  const TimePoint deadline = SteadyClock::SteadyNow() + kAnswerLimit;
  KINTSUGI_RETURN_IF_ERROR(state_channel_->Send(StateWord::kAsk));
  KINTSUGI_ASSIGN_OR_RETURN(StateMessage tensors, state_channel_->Receive(deadline));
  if (tensors.word != StateWord::kTensors)
    return {StatusCode::kNotFound, "the launcher holds nothing of the process before this one"};
  if (tensors.shape != *shape || tensors.files.size() != state_memory_.size())
    return {StatusCode::kFailedPrecondition,
            "the process before this one had registered another state, or laid it out "
            "differently: the order and sizes of AllocateState must be the same"};
  for (size_t i = 0; i < state_memory_.size(); ++i)
    KINTSUGI_RETURN_IF_ERROR(
        state_memory_[i].Replace(tensors.files[i]).Annotate("adopting memory file " + std::to_string(i)));
  KINTSUGI_ASSIGN_OR_RETURN(StateMessage next, state_channel_->Receive(deadline));
  if (next.word == StateWord::kObjects && next.files.size() == 1) {
    KINTSUGI_ASSIGN_OR_RETURN(ObjectSlots slots, ObjectSlots::Open(std::move(next.files.front())));
    if (has_mirrored_) {
      KINTSUGI_ASSIGN_OR_RETURN(const std::vector<uint8_t> objects, slots.Read(step));
      KINTSUGI_RETURN_IF_ERROR(service_->TakeMirrored(step, objects));
      object_slots_.emplace(std::move(slots));
    }
    KINTSUGI_ASSIGN_OR_RETURN(next, state_channel_->Receive(deadline));
  } else if (has_mirrored_) {
    return {StatusCode::kNotFound, "the process before this one left no mirrored objects"};
  }
  KINTSUGI_RETURN_IF_ERROR(state_channel_->Send(StateWord::kAdopted));
  adopted_ = true;
  return Status::Ok();
}

void Agent::Impl::MarkState(core::StateMark mark) {
  words().state_mark.store(static_cast<uint64_t>(mark), std::memory_order_seq_cst);
}

// Before REPAIR and ROLLBACK: whoever is killed within them must not leave half a state for a whole one.
Status Agent::Impl::PrepareState(const core::RunOnTrainer& run) {
  const core::PhaseOrder& order = run.order;
  if (order.phase == core::Phase::kRollback) MarkState(core::StateMark::kWriting);
  if (order.phase != core::Phase::kRepair) return Status::Ok();
  bool adopts = false, receives = order.rung == Rung::kReload;
  for (const RepairMove& move : order.moves)
    if (move.destination == options_.rank) (move.adopt ? adopts : receives) = true;
  if (receives) MarkState(core::StateMark::kWriting);
  return adopts ? AdoptState(order.step) : Status::Ok();
}

}  // namespace kintsugi
