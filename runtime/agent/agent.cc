#include "runtime/agent.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "runtime/agent/impl.h"
#include "runtime/agent/internals.h"
#include "runtime/core/crew.h"

namespace kintsugi {

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::Join(const AgentOptions& options, std::shared_ptr<LogSink> log) {
  auto impl = std::make_unique<Impl>(options, std::move(log));
  KINTSUGI_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Agent>(new Agent(std::move(impl)));
}

// ---- who it is ---------------------------------------------------------------------------------------------------------

Rank Agent::rank() const { return impl_->shared.self.options.rank; }
int Agent::world_size() const { return impl_->shared.self.options.world_size; }
std::vector<Rank> Agent::crew() const {
  const std::vector<Rank>& told = impl_->shared.self.join.crew;
  const Result<core::Crew> crew = core::Crew::Of(world_size(), told);
  return crew.ok() ? crew->ranks() : core::Crew(world_size()).ranks();
}
Incarnation Agent::incarnation() const { return impl_->shared.self.options.incarnation; }
int Agent::device() const { return impl_->shared.self.options.device; }
JoinKind Agent::join_kind() const {
  const core::JoinReply& join = impl_->shared.self.join;
  if (join.replacement) return JoinKind::kReplacement;
  return join.resumes || join.resume_step.value() > 0 ? JoinKind::kResumed : JoinKind::kFresh;
}

// ---- before Run --------------------------------------------------------------------------------------------------------

Status Agent::RegisterTensor(const ShardedTensor& tensor) { return impl_->shared.registered.AddTensor(tensor); }
Status Agent::RebindTensor(const ShardedTensor& tensor) { return impl_->trainer.relocations.Rebind(tensor); }
Status Agent::UnregisterTensor(const std::string& key) { return impl_->trainer.relocations.Unregister(key); }
Status Agent::RegisterObject(const ShardedObject& object) { return impl_->shared.registered.AddObject(object); }
Status Agent::RegisterAlias(const std::string& alias, const std::string& key) {
  return impl_->shared.registered.AddAlias(alias, key);
}
Status Agent::SetReplicaLayout(int layout, const std::vector<Rank>& group, int replicas) {
  return impl_->shared.registered.SetLayout(layout, group, replicas);
}
Status Agent::OfferWorlds(const std::vector<Rank>& slice, const std::vector<int>& worlds) {
  return impl_->shared.registered.SetOffer(slice, worlds);
}
Status Agent::OfferAnyLayout(const std::vector<int>& worlds) { return impl_->shared.registered.SetOffer(worlds); }
Status Agent::CutAnew(const CutState& state) { return impl_->trainer.tasks.CutAnew(state); }
Status Agent::AllowRejects(int most) { return impl_->trainer.refusals.Allow(most); }
Status Agent::HandOverObjects() { return impl_->shared.registered.SetHandsOverObjects(); }
Status Agent::RegisterHandler(HandlerKind kind, HandlerFunction function, void* context) {
  return impl_->shared.registered.SetHandler(kind, function, context);
}
HandlerRegistry::Entry Agent::handler(HandlerKind kind) const { return impl_->shared.registered.handlers().Get(kind); }
std::vector<ShardedTensor> Agent::tensors() const {
  std::vector<ShardedTensor> tensors;
  for (const auto& [key, tensor] : impl_->shared.registered.registry().tensors()) tensors.push_back(tensor);
  return tensors;
}
Status Agent::SetGate(GateMode mode, GateFunction function, void* context) {
  return impl_->shared.registered.SetGate(mode, function, context);
}
Status Agent::RegisterFault(const std::string& pattern, FaultClass fault_class) {
  return impl_->shared.registered.AddFault(pattern, fault_class);
}
Result<Memory> Agent::AllocateState(uint64_t size_bytes) {
  KINTSUGI_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Allocate(size_bytes));
  return impl_->trainer.offer.keeper().Add(std::make_unique<SharedMemory>(std::move(memory)));
}
Result<Memory> Agent::AllocateDeviceState(uint64_t size_bytes) {
  const auto& device = impl_->shared.registered.registry().device_memory();
  if (!device) return Status(StatusCode::kFailedPrecondition, "AllocateDeviceState before SetDeviceMemory");
  KINTSUGI_ASSIGN_OR_RETURN(std::unique_ptr<KeptMemory> memory, device->AllocateKept(size_bytes));
  return impl_->trainer.offer.keeper().Add(std::move(memory));
}
Status Agent::ShareState(void* data, uint64_t size_bytes, int file) {
  UniqueFd own(fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0)
    return {StatusCode::kInvalidArgument, "descriptor " + std::to_string(file) + ": " + std::strerror(errno)};
  KINTSUGI_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Borrow(data, size_bytes, std::move(own)));
  (void)impl_->trainer.offer.keeper().Add(std::make_unique<SharedMemory>(std::move(memory)));
  return Status::Ok();
}
Status Agent::SetDeviceMemory(std::shared_ptr<const DeviceMemory> memory) {
  return impl_->shared.registered.SetDeviceMemory(std::move(memory));
}
void Agent::DescribeMemory(Memory* memory) const { impl_->trainer.offer.keeper().Describe(memory); }

// ---- the guard ---------------------------------------------------------------------------------------------------------

Status Agent::Run(LoopFunction loop, void* context) {
  KINTSUGI_RETURN_IF_ERROR(impl_->trainer.refusals.CheckRules());
  return impl_->trainer.guard.Run(loop, context);
}
int Agent::exit_code() const { return impl_->trainer.guard.exit_code(); }
Status Agent::BeginGuard() {
  KINTSUGI_RETURN_IF_ERROR(impl_->trainer.refusals.CheckRules());
  return impl_->trainer.guard.Begin(/*pulled=*/true);
}
Result<GuardTask> Agent::NextTask(TimePoint until) { return impl_->trainer.guard.NextTask(until); }
Status Agent::FinishTask(const Status& outcome) { return impl_->trainer.tasks.Finish(outcome); }
Status Agent::CarryOutTask() { return impl_->trainer.tasks.CarryOut(); }
Status Agent::LeaveLoop(const Status& why, LoopEnd end, const std::string& signature) {
  return impl_->trainer.guard.LeaveLoop(why, end, signature);
}
bool Agent::at_save_point() const { return impl_->trainer.position.at() == TrainerAt::kAtSavePoint; }
std::unique_ptr<Store> Agent::OpenStore(Generation generation) {
  return impl_->shared.store.Of(generation == Generation() ? impl_->shared.self.generation : generation);
}
Generation Agent::generation() const { return impl_->trainer.pass.generation(); }

// ---- in the loop -------------------------------------------------------------------------------------------------------

Status Agent::BeginStep(Step step) { return impl_->trainer.steps.Begin(step); }
Status Agent::EnterPhase(Step step, TrainPhase phase) { return impl_->trainer.steps.EnterPhase(step, phase); }
Status Agent::BeginCollective() { return impl_->trainer.steps.BeginCollective(); }
Status Agent::BeginCollective(std::span<uint8_t> given) { return impl_->trainer.steps.BeginCollective(given); }
void Agent::NoteComputed(const std::string& of, uint64_t number) { impl_->trainer.refusals.NoteComputed(of, number); }
Status Agent::Reject(Step step, const std::string& reason, const RejectOptions& options) {
  return impl_->trainer.refusals.Reject(step, reason, options.back, options.of_all);
}
const std::string* Agent::LeftOut(Step step) const { return impl_->trainer.refusals.LeftOut(step); }
std::optional<Step> Agent::NextLeftOut(Step after) const { return impl_->trainer.refusals.NextLeftOut(after); }
std::vector<Step> Agent::left_out() const { return impl_->trainer.refusals.left_out(); }
Status Agent::Report(Step step, double loss, std::span<const uint64_t> samples) {
  return impl_->trainer.steps.Report(step, loss, samples);
}
bool Agent::AsksNorm(Step step) const { return impl_->trainer.refusals.AsksNorm(step); }
Status Agent::ReportNorm(Step step, double norm) { return impl_->trainer.steps.ReportNorm(step, norm); }
Status Agent::BeginUpdate(Step step) { return impl_->trainer.updates.Begin(step); }
Status Agent::BeginUpdate(Step step, const DeviceFence& inputs) {
  KINTSUGI_RETURN_IF_ERROR(impl_->trainer.commits.Await(inputs, "inputs of the update"));
  return impl_->trainer.updates.Begin(step);
}
Status Agent::EndUpdate(Step step) { return impl_->trainer.updates.End(step, nullptr); }
Status Agent::EndUpdate(Step step, const DeviceFence& update) { return impl_->trainer.updates.End(step, &update); }
Status Agent::RefreshObjects(Step step) { return impl_->trainer.updates.Refresh(step); }
Status Agent::Poll() const { return impl_->trainer.steps.Poll(); }
Status Agent::BeginActivity(Activity activity, Duration limit) {
  return impl_->trainer.activities.Begin(activity, limit);
}
Status Agent::EndActivity() { return impl_->trainer.activities.End(); }
Status Agent::NoteInexact(const std::string& text) { return impl_->trainer.reports.NoteInexact(text); }
Status Agent::ReportMemoryError(const std::vector<std::string>& keys, const std::string& text, ErrorTime when) {
  return impl_->trainer.reports.MemoryError(keys, text, when);
}
Status Agent::ReportCudaError(int error, int query, const std::vector<AddressRange>& damaged, const std::string& text,
                              ErrorTime when) {
  return impl_->trainer.reports.CudaError(error, query, damaged, text, when);
}
Result<std::map<std::string, std::vector<uint8_t>>> Agent::MirroredOf(Rank rank, Step step) const {
  std::map<std::string, std::vector<uint8_t>> objects;
  if (const auto& service = impl_->shared.registered.service())
    for (const RankObjects& known : service->KnownMirrored(step)) {
      if (known.rank != rank) continue;
      for (const MirroredObject& object : known.objects) objects.emplace(object.key, *object.bytes);
      return objects;
    }
  return Status(StatusCode::kNotFound,
                "no mirrored objects of rank " + rank.ToString() + " at step " + step.ToString() + " are known here");
}
Result<std::map<int, uint64_t>> Agent::StateDigests() const {
  const auto& service = impl_->shared.registered.service();
  if (!service) return Status(StatusCode::kFailedPrecondition, "no digests of state without kintsugi::Join's defaults");
  CancelToken never;
  return service->Digests(never);
}

// ---- the library's own -------------------------------------------------------------------------------------------------

const StateRegistry& AgentInternals::registry(const Agent& agent) { return agent.impl_->shared.registered.registry(); }
const Aliases& AgentInternals::aliases(const Agent& agent) { return agent.impl_->shared.registered.aliases(); }
Status AgentInternals::SetStateService(Agent& agent, std::shared_ptr<StateService> service) {
  return agent.impl_->shared.registered.SetStateService(std::move(service));
}
std::shared_ptr<StateService> AgentInternals::state_service(const Agent& agent) {
  return agent.impl_->shared.registered.service();
}
Status AgentInternals::SetSnapshotService(Agent& agent, std::shared_ptr<SnapshotService> service) {
  return agent.impl_->shared.registered.SetSnapshotService(std::move(service));
}
bool AgentInternals::TakeInjectedThrow(Agent& agent) { return agent.impl_->trainer.injections.TakeThrow(); }
bool AgentInternals::TakeInjectedFlip(Agent& agent) { return agent.impl_->trainer.injections.TakeFlip(); }

}  // namespace kintsugi
