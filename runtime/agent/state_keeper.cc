#include "runtime/agent/state_keeper.h"

#include <algorithm>
#include <map>
#include <set>

#include "kernels/host_checksum.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr Duration kAnswerLimit = std::chrono::seconds(10);

}  // namespace

void StateKeeper::Open(UniqueFd channel) {
  KINTSUGI_CHECK(!channel_, "there is one way to the launcher");
  channel_.emplace(std::move(channel));
}

Memory StateKeeper::Add(std::unique_ptr<KeptMemory> memory) {
  memory_.push_back(std::move(memory));
  return memory_.back()->memory();
}

void StateKeeper::Describe(Memory* memory) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory->data);
  for (const auto& state : memory_) {
    const auto base = reinterpret_cast<uintptr_t>(state->memory().data);
    if (begin < base || begin - base > state->memory().size_bytes ||
        memory->size_bytes > state->memory().size_bytes - (begin - base))
      continue;
    *memory = SliceOf(state->memory(), begin - base, memory->size_bytes);
    return;
  }
}

void StateKeeper::Release(const StateRegistry& was) {
  const auto holds_any = [](const StateRegistry& registry, const Memory& memory) {
    const auto begin = reinterpret_cast<uintptr_t>(memory.data);
    return std::any_of(registry.tensors().begin(), registry.tensors().end(), [&](const auto& each) {
      const auto at = reinterpret_cast<uintptr_t>(each.second.memory.data);
      return each.second.memory.size_bytes > 0 && at >= begin && at - begin < memory.size_bytes;
    });
  };
  std::erase_if(memory_, [&](const auto& state) {
    return holds_any(was, state->memory()) && !holds_any(registry_, state->memory());
  });
}

// The memory that holds all registered tensors, in the order of its allocation, and a hash of what lies where in it: equal
// for two processes whose tensors lie alike, whatever else they have allocated.
struct StateKeeper::Home {
  std::vector<KeptMemory*> memory;
  uint64_t shape = 0;
  std::vector<int> files() const {
    std::vector<int> files;
    for (const KeptMemory* state : memory) files.push_back(state->memory().shared_fd);
    return files;
  }
  bool IsOnDevice() const {
    return std::any_of(memory.begin(), memory.end(),
                       [](const KeptMemory* state) { return state->memory().kind == MemoryKind::kDevice; });
  }
};

// Nothing: some tensor lies elsewhere, and would be lost with the process. One without an element lies nowhere.
std::optional<StateKeeper::Home> StateKeeper::FindHome() {
  std::set<int> used;  // files
  for (const auto& [key, tensor] : registry_.tensors()) {
    if (tensor.memory.size_bytes == 0) continue;
    if (tensor.memory.shared_fd < 0) return std::nullopt;
    used.insert(tensor.memory.shared_fd);
  }
  Home home;
  std::map<int, size_t> places;  // in home.memory, by file
  std::string shape;
  const auto add = [&](uint64_t number) { shape += std::to_string(number) + ' '; };
  for (const auto& state : memory_) {
    if (!used.count(state->memory().shared_fd)) continue;
    places.emplace(state->memory().shared_fd, home.memory.size());
    home.memory.push_back(state.get());
    add(state->memory().size_bytes);
    add(static_cast<uint64_t>(state->memory().kind));
  }
  if (home.memory.empty() || places.size() < used.size()) return std::nullopt;
  for (const auto& [key, tensor] : registry_.tensors()) {
    shape += key + '\n';
    // Of two cuts of one state pieces may lie alike that are others.
    for (const int64_t offset : tensor.global_offset) add(static_cast<uint64_t>(offset));
    if (tensor.flattened_range) add(static_cast<uint64_t>(tensor.flattened_range->start));
    if (tensor.memory.size_bytes == 0) continue;
    add(places.at(tensor.memory.shared_fd));
    add(tensor.memory.shared_offset);
    add(tensor.memory.size_bytes);
  }
  home.shape = HashBytes(shape.data(), shape.size());
  return home;
}

// Which tensors no launcher can hold; one of them is enough.
std::string StateKeeper::OutsideMemory() const {
  constexpr size_t kNamed = 4;
  std::string named;
  size_t count = 0;
  for (const auto& [key, tensor] : registry_.tensors()) {
    const bool inside = std::any_of(memory_.begin(), memory_.end(), [&t = tensor](const auto& state) {
      return state->memory().shared_fd == t.memory.shared_fd;
    });
    if ((tensor.memory.shared_fd >= 0 && inside) || tensor.memory.size_bytes == 0) continue;
    if (++count <= kNamed) named += (count > 1 ? ", '" : "'") + key + "'";
  }
  if (count == 0) return "no tensor is registered";
  if (count > kNamed) named += " and " + std::to_string(count - kNamed) + " more";
  return "tensor" + std::string(count > 1 ? "s " : " ") + named + " of " + std::to_string(registry_.tensors().size()) +
         " outside of Agent::AllocateState";
}

std::string StateKeeper::Offer(bool with_objects) {
  if (!channel_) return {};
  const Status offered = Send(with_objects);
  if (offered.ok()) return {};
  log_->Write(LogLevel::kWarning, LogLine("state_not_held", {{"why", offered.message()}}));
  objects_.reset();
  (void)Withdraw();
  return offered.message();
}

Status StateKeeper::Send(bool with_objects) {
  const std::optional<Home> home = FindHome();
  if (!home) return {StatusCode::kFailedPrecondition, OutsideMemory()};
  KINTSUGI_RETURN_IF_ERROR(channel_->Send(StateWord::kTensors, home->shape, home->files()));
  if (home->IsOnDevice()) KINTSUGI_RETURN_IF_ERROR(channel_->Send(StateWord::kOnDevice));
  if (!with_objects) return Status::Ok();
  if (!objects_) {
    KINTSUGI_ASSIGN_OR_RETURN(ObjectSlots slots, ObjectSlots::Create(0));
    objects_.emplace(std::move(slots));
  }
  return channel_->Send(StateWord::kObjects, 0, {objects_->fd()});
}

Status StateKeeper::Withdraw() { return channel_ ? channel_->Send(StateWord::kTensors, 0, {}) : Status::Ok(); }

void StateKeeper::KeepObjects(Step step, const std::vector<RankObjects>& known, bool ahead) {
  if (!keeps_objects()) return;
  const Result<bool> grown = objects_->Write(step, known, ahead);
  Status kept = grown.status();
  if (grown.ok() && *grown) kept = channel_->Send(StateWord::kObjects, 0, {objects_->fd()});
  if (kept.ok()) return;
  // Better nothing than tensors without their objects.
  log_->Write(LogLevel::kWarning, LogLine("state_not_held", {{"why", kept.message()}}));
  (void)Withdraw();
  channel_.reset();
}

Status StateKeeper::Adopt(Step step, const std::function<void(std::vector<RankObjects>)>& take) {
  if (adopted_) return Status::Ok();  // in an earlier attempt
  const std::optional<Home> home = FindHome();
  if (!channel_ || !home)
    return {StatusCode::kFailedPrecondition, "told to adopt the state of the process before, without memory for it"};
  const TimePoint deadline = SteadyClock::SteadyNow() + kAnswerLimit;
  KINTSUGI_RETURN_IF_ERROR(channel_->Send(StateWord::kAsk));
  KINTSUGI_ASSIGN_OR_RETURN(StateMessage tensors, channel_->Receive(deadline));
  if (tensors.word != StateWord::kTensors)
    return {StatusCode::kNotFound, "the launcher holds nothing of the process before this one"};
  if (tensors.shape != home->shape || tensors.files.size() != home->memory.size())
    return {StatusCode::kFailedPrecondition,
            "the process before this one had registered another state, or laid it out "
            "differently: tensors must lie alike in equal allocations of AllocateState"};
  for (size_t i = 0; i < home->memory.size(); ++i)
    KINTSUGI_RETURN_IF_ERROR(
        home->memory[i]->Replace(tensors.files[i]).Annotate("adopting memory file " + std::to_string(i)));
  KINTSUGI_ASSIGN_OR_RETURN(StateMessage next, channel_->Receive(deadline));
  if (next.word == StateWord::kObjects && next.files.size() == 1) {
    KINTSUGI_ASSIGN_OR_RETURN(ObjectSlots slots, ObjectSlots::Open(std::move(next.files.front())));
    if (take) {
      KINTSUGI_ASSIGN_OR_RETURN(std::vector<RankObjects> known, slots.Read(step));
      take(std::move(known));
      objects_.emplace(std::move(slots));
    }
    KINTSUGI_ASSIGN_OR_RETURN(next, channel_->Receive(deadline));
  } else if (take) {
    return {StatusCode::kNotFound, "the process before this one left no mirrored objects"};
  }
  KINTSUGI_CHECK(!take || objects_, "tensors are adopted with their mirrored objects");
  KINTSUGI_RETURN_IF_ERROR(channel_->Send(StateWord::kAdopted));
  adopted_ = true;
  return Status::Ok();
}

}  // namespace kintsugi
