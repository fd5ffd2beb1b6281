#include "integrations/examples/byte_lm/worker.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "integrations/examples/byte_lm/device/nccl_process_groups.h"
#include "integrations/examples/byte_lm/gloo_process_groups.h"

namespace kintsugi::byte_lm {
namespace {

Worker& Self(void* context) { return *static_cast<Worker*>(context); }

bool Has(const std::vector<uint64_t>& steps, Step step) {
  return std::find(steps.begin(), steps.end(), step.value()) != steps.end();
}

std::unique_ptr<ProcessGroups> GroupsFor(const WorkerOptions& options, const RankLayout& layout) {
  if (options.device == nullptr) return std::make_unique<GlooProcessGroups>(layout);
  return std::make_unique<device::NcclProcessGroups>(layout, options.device->nccl(), options.device->compute());
}

}  // namespace

Worker::Worker(Agent& agent, const WorkerOptions& options, const TextData& text, int64_t global_batch,
               const RankLayout& layout, std::vector<Rank> crew)
    : agent_(agent),
      options_(options),
      text_(text),
      global_batch_(global_batch),
      layout_(layout),
      crew_(std::move(crew)),
      groups_(GroupsFor(options, layout)),
      holds_(agent.rank(), options.holds) {
  if (agent.join_kind() == JoinKind::kReplacement) holds_.Clear();
}

Result<std::unique_ptr<Worker>> Worker::Create(Agent& agent, const WorkerOptions& options, const TextData& text) {
  // The shards are those of all ranks; of a run that ranks have left, fewer hold each.
  KINTSUGI_ASSIGN_OR_RETURN(const RankLayout whole, RankLayout::Of(agent.rank().value(), agent.world_size(),
                                                                   options.tensor_parallel, options.replicas));
  std::vector<Rank> crew = agent.crew();
  const auto place = std::find(crew.begin(), crew.end(), agent.rank());
  if (place == crew.end())
    return Status(StatusCode::kFailedPrecondition,
                  "byte_lm: rank " + agent.rank().ToString() + " takes no part in the run any more");
  const int number = static_cast<int>(place - crew.begin()), size = static_cast<int>(crew.size());
  KINTSUGI_ASSIGN_OR_RETURN(const RankLayout layout,
                            options.any_layout ? RankLayout::Of(number, size, options.tensor_parallel, options.replicas)
                                               : whole.Among(number, size));
  auto worker = std::unique_ptr<Worker>(
      new Worker(agent, options, text, options.train.batch * whole.dp_size, layout, std::move(crew)));
  KINTSUGI_ASSIGN_OR_RETURN(worker->trainer_, worker->MakeTrainer(layout));
  KINTSUGI_RETURN_IF_ERROR(worker->Register());
  return worker;
}

Result<std::unique_ptr<Trainer>> Worker::MakeTrainer(const RankLayout& layout) {
  TrainerOptions trainer;
  trainer.model = options_.model;
  trainer.train = options_.train;
  trainer.train.batch = global_batch_ / layout.dp_size;
  trainer.layout = layout;
  if (options_.device) trainer.compute = &options_.device->compute();
  trainer.allocate_state = [this](const std::string&, size_t count) -> Result<float*> {
    KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, AllocateState(count * sizeof(float)));
    return static_cast<float*>(memory.data);
  };
  return Trainer::Create(trainer, text_);
}

Result<Memory> Worker::AllocateState(uint64_t size_bytes) {
  if (options_.device == nullptr) return agent_.AllocateState(size_bytes);
  const size_t count = (size_bytes + sizeof(float) - 1) / sizeof(float);
  KINTSUGI_ASSIGN_OR_RETURN(float* const data, options_.device->AllocateState(count));
  Memory memory{.data = data, .size_bytes = size_bytes};
  DescribeMemory(&memory);
  return memory;
}

void Worker::DescribeMemory(Memory* memory) const {
  if (options_.device == nullptr) return agent_.DescribeMemory(memory);
  memory->kind = MemoryKind::kDevice;
  memory->device = options_.device->device()->ordinal();
}

CutState Worker::StateOf(Trainer& trainer, const RankLayout& layout, const std::vector<Rank>& crew) const {
  CutState state;
  std::vector<Rank> group;
  for (int number : layout.DataParallelGroup()) group.push_back(crew[static_cast<size_t>(number)]);
  state.layouts = {{0, std::move(group), layout.replicas}};
  state.tensors = trainer.StateTensors();
  for (ShardedTensor& tensor : state.tensors) DescribeMemory(&tensor.memory);
  // The dropout generator moves within a step, and a resumed run begins anywhere in its data, so partners mirror both;
  // the schedule follows from the step.
  state.objects = {trainer.DropoutObject(),
                   trainer.DataObject(),
                   {.key = "schedule", .kind = ObjectKind::kDerived, .take_over = TakeOver::kDerived}};
  return state;
}

Status Worker::Register() {
  KINTSUGI_RETURN_IF_ERROR(Offer());
  if (options_.reject_norm > 0 || options_.reject_most)
    KINTSUGI_RETURN_IF_ERROR(agent_.AllowRejects(options_.reject_most.value_or(10)));
  if (options_.device) KINTSUGI_RETURN_IF_ERROR(agent_.SetDeviceMemory(options_.device->memory()));
  const CutState state = StateOf(*trainer_, layout_, crew_);
  for (const CutState::Layout& each : state.layouts)
    KINTSUGI_RETURN_IF_ERROR(agent_.SetReplicaLayout(each.layout, each.group, each.replicas));
  for (const ShardedTensor& tensor : state.tensors) KINTSUGI_RETURN_IF_ERROR(agent_.RegisterTensor(tensor));
  if (options_.ballast_mib > 0) KINTSUGI_RETURN_IF_ERROR(RegisterBallast());
  for (const ShardedObject& object : state.objects) KINTSUGI_RETURN_IF_ERROR(agent_.RegisterObject(object));
  return RegisterHandlers();
}

Status Worker::Offer() {
  if (!options_.elastic && !options_.any_layout) return Status::Ok();
  if (options_.device)
    return Status(StatusCode::kInvalidArgument,
                  "byte_lm: --elastic and --any-layout are for --device cpu: groups of NCCL keep their ranks");
  if (options_.any_layout) {
    if (options_.elastic || options_.ballast_mib > 0)
      return Status(StatusCode::kInvalidArgument,
                    "byte_lm: --any-layout goes with neither --elastic nor --ballast-mib");
    std::vector<int> worlds;
    for (int size = 1; size <= agent_.world_size(); ++size) {
      const auto there = RankLayout::Of(0, size, options_.tensor_parallel, options_.replicas);
      if (there.ok() && global_batch_ % there->dp_size == 0) worlds.push_back(size);
    }
    return agent_.OfferAnyLayout(worlds);
  }
  const int copy = layout_.shards() * layout_.tp_size, first = layout_.replica() * copy;
  std::vector<Rank> slice(crew_.begin() + first, crew_.begin() + first + copy);
  const auto batch = static_cast<int64_t>(trainer_->batches().global_batch());
  std::vector<int> worlds;
  for (int size = copy; size <= agent_.world_size(); size += copy)
    if (batch % (size / layout_.tp_size) == 0) worlds.push_back(size);
  return agent_.OfferWorlds(slice, worlds);
}

Status Worker::RegisterBallast() {
  const int64_t bytes = static_cast<int64_t>(options_.ballast_mib) << 20;
  KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, AllocateState(static_cast<uint64_t>(bytes)));
  // A replacement's copy comes from a replica: touching every page twice would only delay it.
  if (agent_.join_kind() != JoinKind::kReplacement) {
    if (options_.device)
      options_.device->compute().Fill(memory.size_bytes / sizeof(float), static_cast<float>(layout_.shard()),
                                      static_cast<float*>(memory.data));
    else
      std::memset(memory.data, 0x40 + layout_.shard(), memory.size_bytes);
  }
  ShardedTensor ballast;
  ballast.key = "ballast";
  ballast.dtype = DType::kUInt8;
  ballast.local_shape = {bytes};
  ballast.global_shape = {bytes * layout_.shards()};
  ballast.global_offset = {bytes * layout_.shard()};
  ballast.memory = memory;
  return agent_.RegisterTensor(ballast);
}

Status Worker::RegisterHandlers() {
  const auto on = [this](HandlerKind kind, HandlerFunction function) {
    return agent_.RegisterHandler(kind, function, this);
  };
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kStop, [](HandlerContext&, void* self) {
    Self(self).groups_->Abort();
    return Status::Ok();
  }));
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kClean, [](HandlerContext& call, void* self) {
    Self(self).SettleNext(call);
    Self(self).holds_.Clear();
    return Self(self).groups_->Destroy(call.deadline);
  }));
  KINTSUGI_RETURN_IF_ERROR(
      on(HandlerKind::kRebuildGroup, [](HandlerContext& call, void* self) { return Self(self).RebuildGroups(call); }));
  // Parameters follow from the masters; learning rate and data position from the step's number.
  KINTSUGI_RETURN_IF_ERROR(
      on(HandlerKind::kRollback, [](HandlerContext& call, void* self) { return Self(self).Rollback(call); }));
  if (!options_.gate) return agent_.SetGate(GateMode::kOff);
  return agent_.SetGate(
      GateMode::kTrainer, [](Step step, void* self) { return Self(self).PassGate(step); }, this);
}

Status Worker::RebuildGroups(HandlerContext& call) {
  SettleNext(call);
  if (options_.any_layout) {
    KINTSUGI_ASSIGN_OR_RETURN(const RankLayout layout, RankLayout::Of(call.Number(), call.world_size,
                                                                      options_.tensor_parallel, options_.replicas));
    groups_->MoveTo(layout);
    // Who comes has registered for these ranks.
    if (call.relayout && layout != layout_) return CutAnew(call, layout);
    if (layout != layout_) return Status(StatusCode::kInternal, "byte_lm: other ranks, and no state is cut anew");
    return Connect(call, *trainer_);
  }
  KINTSUGI_ASSIGN_OR_RETURN(const RankLayout layout, layout_.Among(call.Number(), call.world_size));
  if (layout != layout_) {
    const int64_t batch = static_cast<int64_t>(trainer_->batches().global_batch()) / layout.dp_size;
    trainer_->MoveTo(layout, batch);
    groups_->MoveTo(layout);
    layout_ = layout;
  }
  return Connect(call, *trainer_);
}

Status Worker::CutAnew(HandlerContext& call, const RankLayout& layout) {
  Next next{call.generation, layout, nullptr};
  KINTSUGI_ASSIGN_OR_RETURN(next.trainer, MakeTrainer(layout));
  std::vector<Rank> crew;
  for (int number = 0; number < call.world_size; ++number) crew.push_back(call.RankOf(number));
  KINTSUGI_RETURN_IF_ERROR(agent_.CutAnew(StateOf(*next.trainer, layout, crew)));
  next_ = std::move(next);
  return Connect(call, *next_->trainer);
}

Status Worker::Rollback(const HandlerContext& call) {
  SettleNext(call);
  return (next_ ? next_->trainer : trainer_)->SyncParameters();
}

void Worker::SettleNext(const HandlerContext& call) {
  if (!next_) return;
  if (call.registered_in == next_->generation)
    KeepNext();
  else if (call.generation != next_->generation)
    next_.reset();
}

void Worker::KeepNext() {
  if (!next_) return;
  trainer_ = std::move(next_->trainer);
  layout_ = next_->layout;
  next_.reset();
}

Status Worker::Connect(HandlerContext& call, Trainer& trainer) {
  const TimePoint start = SteadyClock::SteadyNow();
  KINTSUGI_RETURN_IF_ERROR(groups_->Connect(call));
  trainer.SetGroups(groups_->groups());
  if (options_.on_connected) options_.on_connected(call.generation, ToMilliseconds(SteadyClock::SteadyNow() - start));
  return Status::Ok();
}

Status Worker::Run() {
  return agent_.Run([](Step first, void* self) { return Self(self).Loop(first); }, this);
}

Status Worker::Loop(Step first) {
  KeepNext();
  for (Step step = first.Next(); step.value() <= static_cast<uint64_t>(options_.train.steps); step = step.Next())
    if (Status status = TrainStep(step); !status.ok()) return Judge(std::move(status));
  return Judge(WriteSamples());
}

Status Worker::TrainStep(Step step) {
  if (options_.on_step) options_.on_step(step);
  KINTSUGI_RETURN_IF_ERROR(agent_.BeginStep(step));
  if (agent_.LeftOut(step) || Has(options_.leave_out, step)) return PassBy(step);
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kForward));
  KINTSUGI_RETURN_IF_ERROR(trainer_->Forward(step));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kBackward));
  KINTSUGI_RETURN_IF_ERROR(trainer_->Backward());
  if (options_.step_delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(options_.step_delay_us));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kGradientSync));
  KINTSUGI_RETURN_IF_ERROR(BeginSum(step));
  KINTSUGI_RETURN_IF_ERROR(trainer_->SyncGradients());
  KINTSUGI_RETURN_IF_ERROR(trainer_->SyncNorm());
  if (options_.reject_norm > 0 && !(trainer_->gradient_norm() <= options_.reject_norm))
    return agent_.Reject(step, "the norm of the gradients is " + std::to_string(trainer_->gradient_norm()));
  KINTSUGI_RETURN_IF_ERROR(HoldBack(Hold::Point::kGradientSync, step));
  // Tensor-parallel ranks consume the same samples: one of them says so.
  const std::vector<uint64_t> none;
  KINTSUGI_RETURN_IF_ERROR(agent_.Report(step, trainer_->loss(), layout_.tp_rank == 0 ? trainer_->sample_ids() : none));
  if (agent_.AsksNorm(step)) KINTSUGI_RETURN_IF_ERROR(agent_.ReportNorm(step, trainer_->gradient_norm()));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kGate));
  KINTSUGI_RETURN_IF_ERROR(Update(step));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kParamSync));
  KINTSUGI_RETURN_IF_ERROR(trainer_->SyncParameters());
  return agent_.EnterPhase(step, TrainPhase::kBetween);
}

Status Worker::PassBy(Step step) {
  trainer_->PassBy(step);
  KINTSUGI_RETURN_IF_ERROR(agent_.BeginUpdate(step));
  return agent_.EndUpdate(step);
}

Status Worker::BeginSum(Step step) {
  if (options_.device) return agent_.BeginCollective();
  const std::span<float> given = trainer_->given();
  if (agent_.rank().value() == agent_.world_size() - 1 && Has(options_.poison, step))
    std::replace_if(  // gaps stay zero
        given.begin(), given.end(), [](float one) { return one != 0; }, std::numeric_limits<float>::quiet_NaN());
  return agent_.BeginCollective({reinterpret_cast<uint8_t*>(given.data()), given.size_bytes()});
}

Status Worker::Update(Step step) {
  KINTSUGI_RETURN_IF_ERROR(agent_.BeginUpdate(step));
  const size_t pieces = trainer_->skips_update() ? 0 : trainer_->piece_count();
  for (size_t i = 0; i < pieces; ++i) {
    if (i == pieces / 2) {
      KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kUpdate));
      (void)HoldBack(Hold::Point::kUpdate, step);  // an abort does not end what is only arithmetic
    }
    trainer_->UpdatePiece(i);
  }
  return Commit(step);
}

Status Worker::Commit(Step step) {
  if (options_.device == nullptr) return agent_.EndUpdate(step);
  KINTSUGI_RETURN_IF_ERROR(options_.device->compute().status());
  KINTSUGI_RETURN_IF_ERROR(options_.device->fence().Record(options_.device->compute().stream().handle()));
  return agent_.EndUpdate(step, options_.device->fence());
}

Status Worker::Judge(Status status) {
  if (options_.device == nullptr || status.code() != StatusCode::kInternal) return status;
  const int query = options_.device->compute().stream().Query();
  if (query == 0 || query == kCudaNotReady) return status;  // the context is alive: a fault as any other
  return agent_.ReportCudaError(query, query, {}, status.message());
}

Status Worker::PassGate(Step step) {
  KINTSUGI_RETURN_IF_ERROR(groups_->Barrier());
  return HoldBack(Hold::Point::kGate, step);
}

Status Worker::HoldBack(Hold::Point point, Step step) {
  return holds_.Take(point, step) ? groups_->AwaitAbort() : Status::Ok();
}

Status Worker::WriteSamples() {
  samples_.clear();
  if (layout_.dp_rank != 0) return Status::Ok();
  for (int i = 0; i < options_.sample_count; ++i) {
    SampleOptions sample;
    sample.seed = options_.train.seed + static_cast<uint64_t>(i);
    KINTSUGI_ASSIGN_OR_RETURN(std::string text, trainer_->Generate(sample));
    if (layout_.tp_rank == 0) samples_.push_back(std::move(text));
  }
  return Status::Ok();
}

}  // namespace kintsugi::byte_lm
