// State that outlives the process: what lies in memory files is offered to the launcher, and what the process before
// this one left there is put in place of this one's (rung adopt). All on the trainer's thread.
#include <algorithm>
#include <set>
#include <string>

#include "kernels/host_checksum.h"
#include "runtime/agent/impl.h"

namespace kintsugi {
namespace {

constexpr Duration kAnswerLimit = std::chrono::seconds(10);

}  // namespace

// The memory that holds all registered tensors, in the order of its allocation, and a hash of what lies where in it: equal
// for two processes whose tensors lie alike, whatever else they have allocated.
struct Agent::Impl::StateHome {
  std::vector<SharedMemory*> memory;
  uint64_t shape = 0;
  std::vector<int> files() const {
    std::vector<int> files;
    for (const SharedMemory* state : memory) files.push_back(state->memory().shared_fd);
    return files;
  }
};

// Nothing: some tensor lies elsewhere, and would be lost with the process.
std::optional<Agent::Impl::StateHome> Agent::Impl::FindStateHome() {
  std::set<int> used;  // files
  for (const auto& [key, tensor] : registry_.tensors()) {
    if (tensor.memory.kind != MemoryKind::kShared) return std::nullopt;
    used.insert(tensor.memory.shared_fd);
  }
  StateHome home;
  std::map<int, size_t> places;  // in home.memory, by file
  std::string shape;
  const auto add = [&](uint64_t number) { shape += std::to_string(number) + ' '; };
  for (SharedMemory& state : state_memory_) {
    if (!used.count(state.memory().shared_fd)) continue;
    places.emplace(state.memory().shared_fd, home.memory.size());
    home.memory.push_back(&state);
    add(state.memory().size_bytes);
  }
  if (home.memory.empty() || places.size() < used.size()) return std::nullopt;
  for (const auto& [key, tensor] : registry_.tensors()) {
    shape += key + '\n';
    add(places.at(tensor.memory.shared_fd));
    add(tensor.memory.shared_offset);
    add(tensor.memory.size_bytes);
  }
  home.shape = HashBytes(shape.data(), shape.size());
  return home;
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

// Again where it has moved: all that is registered, or nothing.
void Agent::Impl::OfferState() {
  if (!state_channel_) {
    if (options_.state_fd < 0 || running_) return;  // no launcher, or one that holds nothing; or it hears no more
    state_channel_.emplace(UniqueFd(options_.state_fd));
  }
  const Status offered = SendState();
  if (offered.ok()) return;
  log_->Write(LogLevel::kWarning, LogLine("state_not_held", {{"why", offered.message()}}));
  warning_ = "when its process is lost its state cannot be adopted, all of it will be streamed: " + offered.message();
  object_slots_.reset();
  (void)state_channel_->Send(StateWord::kTensors, 0, {});
}

Status Agent::Impl::SendState() {
  const std::optional<StateHome> home = FindStateHome();
  if (!home) return {StatusCode::kFailedPrecondition, OutsideMemory()};
  KINTSUGI_RETURN_IF_ERROR(state_channel_->Send(StateWord::kTensors, home->shape, home->files()));
  if (!has_mirrored_) return Status::Ok();
  if (!object_slots_) {
    KINTSUGI_ASSIGN_OR_RETURN(ObjectSlots slots, ObjectSlots::Create(0));
    object_slots_.emplace(std::move(slots));
  }
  return state_channel_->Send(StateWord::kObjects, 0, {object_slots_->fd()});
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
  const std::optional<StateHome> home = FindStateHome();
  if (!state_channel_ || !home)
    return {StatusCode::kFailedPrecondition, "told to adopt the state of the process before, without memory for it"};
  const TimePoint deadline = SteadyClock::SteadyNow() + kAnswerLimit;
  KINTSUGI_RETURN_IF_ERROR(state_channel_->Send(StateWord::kAsk));
  KINTSUGI_ASSIGN_OR_RETURN(StateMessage tensors, state_channel_->Receive(deadline));
  if (tensors.word != StateWord::kTensors)
    return {StatusCode::kNotFound, "the launcher holds nothing of the process before this one"};
  if (tensors.shape != home->shape || tensors.files.size() != home->memory.size())
    return {StatusCode::kFailedPrecondition,
            "the process before this one had registered another state, or laid it out "
            "differently: tensors must lie alike in equal allocations of AllocateState"};
  for (size_t i = 0; i < home->memory.size(); ++i)
    KINTSUGI_RETURN_IF_ERROR(
        home->memory[i]->Replace(tensors.files[i]).Annotate("adopting memory file " + std::to_string(i)));
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
