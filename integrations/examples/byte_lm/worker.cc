#include "integrations/examples/byte_lm/worker.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "integrations/examples/byte_lm/device/nccl_process_groups.h"
#include "integrations/examples/byte_lm/gloo_process_groups.h"

namespace kintsugi::byte_lm {
namespace {

Worker& Self(void* context) { return *static_cast<Worker*>(context); }

std::unique_ptr<ProcessGroups> GroupsFor(const WorkerOptions& options, const RankLayout& layout) {
  if (options.device == nullptr) return std::make_unique<GlooProcessGroups>(layout);
  return std::make_unique<device::NcclProcessGroups>(layout, options.device->nccl(), options.device->compute());
}

}  // namespace

Worker::Worker(Agent& agent, const WorkerOptions& options, const RankLayout& layout, std::vector<Rank> crew)
    : agent_(agent),
      options_(options),
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
  KINTSUGI_ASSIGN_OR_RETURN(const RankLayout layout,
                            whole.Among(static_cast<int>(place - crew.begin()), static_cast<int>(crew.size())));
  auto worker = std::unique_ptr<Worker>(new Worker(agent, options, layout, std::move(crew)));
  TrainerOptions trainer;
  trainer.model = options.model;
  trainer.train = options.train;
  trainer.train.batch = options.train.batch * whole.dp_size / layout.dp_size;
  trainer.layout = layout;
  if (options.device) trainer.compute = &options.device->compute();
  trainer.allocate_state = [self = worker.get()](const std::string&, size_t count) -> Result<float*> {
    KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, self->AllocateState(count * sizeof(float)));
    return static_cast<float*>(memory.data);
  };
  KINTSUGI_ASSIGN_OR_RETURN(worker->trainer_, Trainer::Create(trainer, text));
  KINTSUGI_RETURN_IF_ERROR(worker->Register());
  return worker;
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

Status Worker::Register() {
  std::vector<Rank> group;
  for (int number : layout_.DataParallelGroup()) group.push_back(crew_[static_cast<size_t>(number)]);
  KINTSUGI_RETURN_IF_ERROR(agent_.SetReplicaLayout(0, group, layout_.replicas));
  KINTSUGI_RETURN_IF_ERROR(Offer());
  if (options_.device) KINTSUGI_RETURN_IF_ERROR(agent_.SetDeviceMemory(options_.device->memory()));
  for (ShardedTensor tensor : trainer_->StateTensors()) {
    DescribeMemory(&tensor.memory);
    KINTSUGI_RETURN_IF_ERROR(agent_.RegisterTensor(tensor));
  }
  if (options_.ballast_mib > 0) KINTSUGI_RETURN_IF_ERROR(RegisterBallast());
  // The dropout generator moves within a step, and a resumed run begins anywhere in its data, so partners mirror both;
  // the schedule follows from the step.
  KINTSUGI_RETURN_IF_ERROR(agent_.RegisterObject(trainer_->DropoutObject()));
  KINTSUGI_RETURN_IF_ERROR(agent_.RegisterObject(trainer_->DataObject()));
  KINTSUGI_RETURN_IF_ERROR(
      agent_.RegisterObject({.key = "schedule", .kind = ObjectKind::kDerived, .take_over = TakeOver::kDerived}));
  return RegisterHandlers();
}

Status Worker::Offer() {
  if (!options_.elastic) return Status::Ok();
  if (options_.device)
    return Status(StatusCode::kInvalidArgument, "byte_lm: --elastic is for --device cpu: groups of NCCL keep their ranks");
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
    Self(self).holds_.Clear();
    return Self(self).groups_->Destroy(call.deadline);
  }));
  KINTSUGI_RETURN_IF_ERROR(
      on(HandlerKind::kRebuildGroup, [](HandlerContext& call, void* self) { return Self(self).RebuildGroups(call); }));
  // Parameters follow from the masters; learning rate and data position from the step's number.
  KINTSUGI_RETURN_IF_ERROR(
      on(HandlerKind::kRollback, [](HandlerContext&, void* self) { return Self(self).trainer_->SyncParameters(); }));
  if (!options_.gate) return agent_.SetGate(GateMode::kOff);
  return agent_.SetGate(
      GateMode::kTrainer, [](Step step, void* self) { return Self(self).PassGate(step); }, this);
}

Status Worker::RebuildGroups(HandlerContext& call) {
  const TimePoint start = SteadyClock::SteadyNow();
  KINTSUGI_ASSIGN_OR_RETURN(const RankLayout layout, layout_.Among(call.Number(), call.world_size));
  if (layout != layout_) {
    const int64_t batch = static_cast<int64_t>(trainer_->batches().global_batch()) / layout.dp_size;
    trainer_->MoveTo(layout, batch);
    groups_->MoveTo(layout);
    layout_ = layout;
  }
  KINTSUGI_RETURN_IF_ERROR(groups_->Connect(call));
  trainer_->SetGroups(groups_->groups());
  if (options_.on_connected) options_.on_connected(call.generation, ToMilliseconds(SteadyClock::SteadyNow() - start));
  return Status::Ok();
}

Status Worker::Run() {
  return agent_.Run([](Step first, void* self) { return Self(self).Loop(first); }, this);
}

Status Worker::Loop(Step first) {
  for (Step step = first.Next(); step.value() <= static_cast<uint64_t>(options_.train.steps); step = step.Next())
    if (Status status = TrainStep(step); !status.ok()) return Judge(std::move(status));
  return Judge(WriteSamples());
}

Status Worker::TrainStep(Step step) {
  if (options_.on_step) options_.on_step(step);
  KINTSUGI_RETURN_IF_ERROR(agent_.BeginStep(step));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kForward));
  KINTSUGI_RETURN_IF_ERROR(trainer_->Forward(step));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kBackward));
  KINTSUGI_RETURN_IF_ERROR(trainer_->Backward());
  if (options_.step_delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(options_.step_delay_us));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kGradientSync));
  KINTSUGI_RETURN_IF_ERROR(trainer_->SyncGradients());
  KINTSUGI_RETURN_IF_ERROR(trainer_->SyncNorm());
  KINTSUGI_RETURN_IF_ERROR(HoldBack(Hold::Point::kGradientSync, step));
  // Tensor-parallel ranks consume the same samples: one of them says so.
  const std::vector<uint64_t> none;
  KINTSUGI_RETURN_IF_ERROR(agent_.Report(step, trainer_->loss(), layout_.tp_rank == 0 ? trainer_->sample_ids() : none));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kGate));
  KINTSUGI_RETURN_IF_ERROR(Update(step));
  KINTSUGI_RETURN_IF_ERROR(agent_.EnterPhase(step, TrainPhase::kParamSync));
  KINTSUGI_RETURN_IF_ERROR(trainer_->SyncParameters());
  return agent_.EnterPhase(step, TrainPhase::kBetween);
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
