#include "runtime/agent.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/agent/impl.h"

namespace kintsugi {

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::Join(const AgentOptions& options, std::shared_ptr<LogSink> log) {
  auto impl = std::make_unique<Impl>(options, std::move(log));
  KINTSUGI_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Agent>(new Agent(std::move(impl)));
}

Rank Agent::rank() const { return impl_->options_.rank; }
int Agent::world_size() const { return impl_->options_.world_size; }
Incarnation Agent::incarnation() const { return impl_->options_.incarnation; }
int Agent::exit_code() const { return impl_->exit_code_; }
const StateRegistry& Agent::registry() const { return impl_->registry_; }
const Aliases& Agent::aliases() const { return impl_->aliases_; }

int Agent::device() const { return impl_->options_.device; }
JoinKind Agent::join_kind() const {
  if (impl_->join_.replacement) return JoinKind::kReplacement;
  return impl_->join_.resumes || impl_->join_.resume_step.value() > 0 ? JoinKind::kResumed : JoinKind::kFresh;
}

Status Agent::RegisterTensor(const ShardedTensor& tensor) {
  KINTSUGI_RETURN_IF_ERROR(impl_->aliases_.CheckFree(tensor.key));
  return impl_->registry_.AddTensor(tensor);
}
Status Agent::RebindTensor(const ShardedTensor& tensor) { return impl_->RebindTensor(tensor); }
Status Agent::UnregisterTensor(const std::string& key) { return impl_->UnregisterTensor(key); }
Status Agent::RegisterObject(const ShardedObject& object) {
  KINTSUGI_RETURN_IF_ERROR(impl_->aliases_.CheckFree(object.key));
  return impl_->registry_.AddObject(object);
}
Status Agent::RegisterAlias(const std::string& alias, const std::string& key) {
  return impl_->aliases_.Add(alias, key, impl_->registry_);
}

Status Agent::SetReplicaLayout(int layout, const std::vector<Rank>& group, int replicas) {
  if (impl_->running_)
    return {StatusCode::kFailedPrecondition, "layout " + std::to_string(layout) + " set after Agent::Run began"};
  if (layout < 0 || group.empty() || replicas < 1 || group.size() % static_cast<size_t>(replicas) != 0)
    return {StatusCode::kInvalidArgument, "layout " + std::to_string(layout) + ": " + std::to_string(replicas) +
                                              " replicas do not divide a group of " + std::to_string(group.size()) +
                                              " ranks"};
  if (std::find(group.begin(), group.end(), rank()) == group.end())
    return {StatusCode::kInvalidArgument,
            "layout " + std::to_string(layout) + ": rank " + rank().ToString() + " is not in the group it names"};
  std::vector<Rank> sorted = group;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return {StatusCode::kInvalidArgument,
            "layout " + std::to_string(layout) + ": rank " + twice->ToString() + " is in its group twice"};
  impl_->layouts_[layout] = {std::move(sorted), replicas};
  return Status::Ok();
}

Status Agent::RegisterHandler(HandlerKind kind, HandlerFunction function, void* context) {
  if (impl_->running_)
    return {StatusCode::kFailedPrecondition,
            "handler '" + std::string(HandlerKindName(kind)) + "' registered after Agent::Run began"};
  return impl_->handlers_.Register(kind, function, context);
}

Status Agent::SetStateService(std::shared_ptr<StateService> service) {
  if (impl_->running_) return {StatusCode::kFailedPrecondition, "the state service was set after Agent::Run began"};
  impl_->service_ = std::move(service);
  return Status::Ok();
}

std::shared_ptr<StateService> Agent::state_service() const { return impl_->service_; }
HandlerRegistry::Entry Agent::handler(HandlerKind kind) const { return impl_->handlers_.Get(kind); }

Status Agent::SetSnapshotService(std::shared_ptr<SnapshotService> service) {
  if (impl_->running_) return {StatusCode::kFailedPrecondition, "the snapshot service was set after Agent::Run began"};
  impl_->snapshots_ = std::move(service);
  return Status::Ok();
}

Status Agent::SetGate(GateMode mode, GateFunction function, void* context) {
  if (impl_->running_) return {StatusCode::kFailedPrecondition, "the gate was set after Agent::Run began"};
  if ((mode == GateMode::kTrainer) != (function != nullptr))
    return {StatusCode::kInvalidArgument, "a gate of the trainer's own needs a function, the other modes none"};
  impl_->gate_mode_ = mode;
  impl_->gate_function_ = function;
  impl_->gate_context_ = context;
  return Status::Ok();
}

Status Agent::RegisterFault(const std::string& pattern, FaultClass fault_class) {
  return impl_->RegisterFault(pattern, fault_class);
}

Result<Memory> Agent::AllocateState(uint64_t size_bytes) {
  KINTSUGI_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Allocate(size_bytes));
  return impl_->keeper_.Add(std::move(memory));
}

Status Agent::ShareState(void* data, uint64_t size_bytes, int file) {
  UniqueFd own(fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0)
    return {StatusCode::kInvalidArgument, "descriptor " + std::to_string(file) + ": " + std::strerror(errno)};
  KINTSUGI_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Borrow(data, size_bytes, std::move(own)));
  (void)impl_->keeper_.Add(std::move(memory));
  return Status::Ok();
}

void Agent::DescribeMemory(Memory* memory) const { impl_->keeper_.Describe(memory); }

Status Agent::SetDeviceMemory(std::shared_ptr<const DeviceMemory> memory) {
  return impl_->registry_.SetDeviceMemory(std::move(memory));
}

Status Agent::Run(LoopFunction loop, void* context) { return impl_->Run(loop, context); }
Status Agent::BeginGuard() { return impl_->BeginGuard(/*pulled=*/true); }
Result<GuardTask> Agent::NextTask(TimePoint until) { return impl_->NextTask(until); }
Status Agent::FinishTask(const Status& outcome) { return impl_->FinishTask(outcome); }
Status Agent::CarryOutTask() { return impl_->CarryOutTask(); }
Status Agent::LeaveLoop(const Status& why, bool threw) { return impl_->LeaveLoop(why, threw); }
bool Agent::at_save_point() const { return impl_->at_save_point(); }
std::unique_ptr<Store> Agent::OpenStore(Generation generation) {
  return impl_->store_.Of(generation == Generation() ? impl_->joined_generation_ : generation);
}
Status Agent::BeginStep(Step step) { return impl_->BeginStep(step); }
Status Agent::EnterPhase(Step step, TrainPhase phase) { return impl_->EnterPhase(step, phase); }
Status Agent::BeginCollective() { return impl_->BeginCollective(); }
Status Agent::Report(Step step, double loss, std::span<const uint64_t> samples) {
  return impl_->Report(step, loss, samples);
}
Status Agent::BeginUpdate(Step step) { return impl_->BeginUpdate(step); }
Status Agent::BeginUpdate(Step step, const DeviceFence& inputs) {
  KINTSUGI_RETURN_IF_ERROR(impl_->AwaitFence(inputs, "inputs of the update"));
  return impl_->BeginUpdate(step);
}
Status Agent::EndUpdate(Step step) { return impl_->EndUpdate(step, nullptr); }
Status Agent::EndUpdate(Step step, const DeviceFence& update) { return impl_->EndUpdate(step, &update); }
Status Agent::Poll() const { return impl_->Poll(); }
Status Agent::BeginActivity(Activity activity) { return impl_->BeginActivity(activity); }
Status Agent::EndActivity() { return impl_->EndActivity(); }
Status Agent::ReportMemoryError(const std::vector<std::string>& keys, const std::string& text, ErrorTime when) {
  return impl_->ReportMemoryError(keys, text, when);
}
Status Agent::ReportCudaError(int error, int query, const std::vector<device::AddressRange>& damaged,
                              const std::string& text, ErrorTime when) {
  return impl_->ReportCudaError(error, query, damaged, text, when);
}
bool Agent::TakeInjectedThrow() { return std::exchange(impl_->injected_throw_, false); }

}  // namespace kintsugi
