#include "tests/inproc/toy_trainer.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace kintsugi::inproc {
namespace {

ToyTrainer& Self(void* context) { return *static_cast<ToyTrainer*>(context); }

uint64_t Advance(uint64_t state) { return state * 6364136223846793005ull + 1442695040888963407ull; }

void CaptureRng(void* context, std::vector<uint8_t>* out) {
  const auto* begin = static_cast<const uint8_t*>(context);
  out->insert(out->end(), begin, begin + sizeof(uint64_t));
}

Status RestoreRng(void* context, const uint8_t* bytes, uint64_t size_bytes) {
  if (size_bytes != sizeof(uint64_t)) return {StatusCode::kDataLoss, "a generator's state has 8 bytes"};
  std::memcpy(context, bytes, size_bytes);
  return Status::Ok();
}

}  // namespace

ToyTrainer::ToyTrainer(TrainerSetup setup, Hub& hub, Script& script)
    : setup_(std::move(setup)), hub_(hub), script_(script) {}

ToyTrainer::~ToyTrainer() {
  if (thread_.joinable()) thread_.join();
}

void ToyTrainer::Start() {
  thread_ = std::thread([this] {
    result_ = Main();
    if (agent_) exit_code_ = agent_->exit_code();
    if (weights_) {
      final_state_.assign(weights_, weights_ + kCount);
      final_state_.insert(final_state_.end(), momentum_, momentum_ + kCount);
    }
    weights_ = nullptr;
    agent_.reset();
  });
}

Status ToyTrainer::Wait() {
  if (thread_.joinable()) thread_.join();
  return result_;
}

std::vector<float> ToyTrainer::State() const { return final_state_; }

Status ToyTrainer::Main() {
  KINTSUGI_ASSIGN_OR_RETURN(agent_, kintsugi::Join(setup_.agent));
  joined_ = true;
  join_kind_ = agent_->join_kind();
  KINTSUGI_RETURN_IF_ERROR(Describe());
  if (setup_.tweaks.before_registration) setup_.tweaks.before_registration(*this);
  KINTSUGI_RETURN_IF_ERROR(Register());
  if (setup_.tweaks.after_registration) KINTSUGI_RETURN_IF_ERROR(setup_.tweaks.after_registration(*this));
  const Status ended = agent_->Run([](Step first, void* self) { return Self(self).Loop(first); }, this);
  if (setup_.tweaks.after_run) setup_.tweaks.after_run(*this);
  return ended;
}

Status ToyTrainer::Describe() {
  constexpr uint64_t kBytes = kCount * sizeof(float);
  const auto& allocate = setup_.tweaks.allocate;
  KINTSUGI_ASSIGN_OR_RETURN(const Memory weights,
                            allocate ? Result<Memory>(allocate(kBytes)) : agent_->AllocateState(kBytes));
  momentum_heap_.assign(kCount, 0.0f);
  const Memory momentum = allocate ? allocate(kBytes) : Memory{.data = momentum_heap_.data(), .size_bytes = kBytes};
  weights_ = static_cast<float*>(weights.data);
  momentum_ = static_cast<float*>(momentum.data);
  if (setup_.tweaks.device) KINTSUGI_RETURN_IF_ERROR(agent_->SetDeviceMemory(setup_.tweaks.device));
  for (size_t i = 0; i < kCount; ++i) weights_[i] = 0.01f * static_cast<float>(100 * shard() + static_cast<int>(i));
  rng_ = 1000u + static_cast<uint64_t>(rank());
  for (int r = 0; r < setup_.agent.world_size; ++r) group_.push_back(Rank(r));
  const auto describe = [&](const char* key, const Memory& memory) {
    ShardedTensor tensor;
    tensor.key = key;
    const auto count = static_cast<int64_t>(memory.size_bytes / sizeof(float));
    tensor.local_shape = {count};
    tensor.global_shape = {count * stride()};
    tensor.global_offset = {count * shard()};
    tensor.memory = memory;
    descriptions_.push_back(tensor);
  };
  describe("weights", weights);
  describe("momentum", momentum);
  return Status::Ok();
}

Status ToyTrainer::Register() {
  KINTSUGI_RETURN_IF_ERROR(agent_->SetReplicaLayout(0, group_, setup_.replicas));
  for (const ShardedTensor& tensor : descriptions_) KINTSUGI_RETURN_IF_ERROR(agent_->RegisterTensor(tensor));
  KINTSUGI_RETURN_IF_ERROR(agent_->RegisterObject(
      {.key = "rng", .kind = setup_.mirrored ? ObjectKind::kMirrored : ObjectKind::kDerived, .capture = CaptureRng, .restore = RestoreRng, .context = &rng_}));
  KINTSUGI_RETURN_IF_ERROR(agent_->RegisterObject({.key = "schedule", .kind = ObjectKind::kDerived}));
  if (setup_.tweaks.register_handlers) KINTSUGI_RETURN_IF_ERROR(RegisterHandlers());
  if (setup_.gate != GateMode::kTrainer) return agent_->SetGate(setup_.gate);
  return agent_->SetGate(setup_.gate, [](Step step, void* self) { return Self(self).Gate(step); }, this);
}

Status ToyTrainer::RegisterHandlers() {
  const auto on = [this](HandlerKind kind, HandlerFunction function) {
    return agent_->RegisterHandler(kind, function, this);
  };
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kStop, [](HandlerContext& call, void* self) {
    return Self(self).Handle(HandlerKind::kStop, call);
  }));
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kClean, [](HandlerContext& call, void* self) {
    return Self(self).Handle(HandlerKind::kClean, call);
  }));
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kRebuildGroup, [](HandlerContext& call, void* self) {
    return Self(self).Handle(HandlerKind::kRebuildGroup, call);
  }));
  return on(HandlerKind::kRollback, [](HandlerContext& call, void* self) {
    return Self(self).Handle(HandlerKind::kRollback, call);
  });
}

Status ToyTrainer::Handle(HandlerKind kind, HandlerContext& call) {
  if (setup_.tweaks.handler) KINTSUGI_RETURN_IF_ERROR(setup_.tweaks.handler(kind, call, *this));
  switch (kind) {
    case HandlerKind::kStop:
    case HandlerKind::kClean: AbortGroup(); return Status::Ok();
    case HandlerKind::kRebuildGroup: return Rebuild(call);
    case HandlerKind::kRollback: schedule_ = call.step.value(); return Status::Ok();
    default: return Status::Ok();
  }
}

Status ToyTrainer::Rebuild(HandlerContext& call) {
  const std::shared_ptr<Group> group = hub_.Of(call.generation);
  {
    std::lock_guard lock(mutex_);
    members_ = group;
  }
  const CancelToken::Subscription superseded(*call.cancel, [&] { group->Abort(rank()); });
  return group->Barrier(rank());
}

std::shared_ptr<Group> ToyTrainer::group_now() const {
  std::lock_guard lock(mutex_);
  return members_;
}

void ToyTrainer::AbortGroup() {
  if (const auto group = group_now()) group->Abort(rank());
}

Status ToyTrainer::Loop(Step first) {
  for (Step step = first.Next(); step.value() <= setup_.steps; step = step.Next())
    KINTSUGI_RETURN_IF_ERROR(TrainStep(step));
  return Status::Ok();
}

Status ToyTrainer::TrainStep(Step step) {
  KINTSUGI_RETURN_IF_ERROR(agent_->BeginStep(step));
  if (schedule_ + 1 != step.value()) return {StatusCode::kInternal, "the schedule was not taken back to the step"};
  if (setup_.tweaks.at_step) KINTSUGI_RETURN_IF_ERROR(setup_.tweaks.at_step(*this, step));
  if (agent_->LeftOut(step)) return PassBy(step);
  KINTSUGI_RETURN_IF_ERROR(Pass(step, Point::kForward));
  std::vector<float> gradient = Gradient(step);
  KINTSUGI_RETURN_IF_ERROR(Pass(step, Point::kBackward));
  if (setup_.tweaks.given) KINTSUGI_RETURN_IF_ERROR(setup_.tweaks.given(*this, step, &gradient));
  KINTSUGI_RETURN_IF_ERROR(group_now()->AllReduceSum(rank(), &gradient));
  if (setup_.tweaks.summed) KINTSUGI_RETURN_IF_ERROR(setup_.tweaks.summed(*this, step, gradient));
  const std::vector<uint64_t> samples = {step.value() * 100 + static_cast<uint64_t>(rank())};
  KINTSUGI_RETURN_IF_ERROR(agent_->Report(step, gradient[0], samples));
  KINTSUGI_RETURN_IF_ERROR(Pass(step, Point::kBeforeUpdate));
  KINTSUGI_RETURN_IF_ERROR(Update(step, gradient));
  return Pass(step, Point::kCommitted);
}

// As a plain loop does by `continue`.
Status ToyTrainer::PassBy(Step step) {
  KINTSUGI_RETURN_IF_ERROR(Pass(step, Point::kBeforeUpdate));
  KINTSUGI_RETURN_IF_ERROR(agent_->BeginUpdate(step));
  schedule_ = step.value();
  return agent_->EndUpdate(step);
}

std::vector<float> ToyTrainer::Gradient(Step step) {
  std::vector<float> gradient(kCount);
  if (!setup_.mirrored) rng_ = 1000 * step.value() + static_cast<uint64_t>(rank());
  for (size_t i = 0; i < kCount; ++i) {
    rng_ = Advance(rng_);
    const float noise = static_cast<float>(rng_ >> 40) / static_cast<float>(1 << 24);
    gradient[i] = 0.001f * weights_[i] + 0.01f * noise + 0.001f * static_cast<float>(step.value());
  }
  return gradient;
}

Status ToyTrainer::Update(Step step, const std::vector<float>& gradient) {
  const DeviceFence* inputs = setup_.tweaks.input_fence ? setup_.tweaks.input_fence(*this, step) : nullptr;
  KINTSUGI_RETURN_IF_ERROR(inputs ? agent_->BeginUpdate(step, *inputs) : agent_->BeginUpdate(step));
  const float rate = 0.1f / std::sqrt(static_cast<float>(schedule_ + 1));
  for (size_t i = 0; i < kCount; ++i) {
    if (i == kCount / 2) KINTSUGI_RETURN_IF_ERROR(Pass(step, Point::kUpdate));
    momentum_[i] = 0.9f * momentum_[i] + gradient[i];
    weights_[i] -= rate * momentum_[i];
  }
  ++updates_;
  schedule_ = step.value();
  const DeviceFence* fence = setup_.tweaks.update_fence ? setup_.tweaks.update_fence(*this, step) : nullptr;
  return fence ? agent_->EndUpdate(step, *fence) : agent_->EndUpdate(step);
}

Status ToyTrainer::Gate(Step step) {
  KINTSUGI_RETURN_IF_ERROR(group_now()->Barrier(rank()));
  const auto group = group_now();
  (void)script_.Pass(rank(), step.value(), Point::kInGate, [&] { return group->aborted(); });
  return group->aborted() ? group->AbortedStatus(rank()) : Status::Ok();
}

Status ToyTrainer::Pass(Step step, Point point) {
  const auto group = group_now();
  switch (script_.Pass(rank(), step.value(), point, [&] { return group->aborted(); })) {
    case Fault::kNone: return Status::Ok();
    case Fault::kThrow: throw std::runtime_error("thrown by the script, and this is no text: \xff\xfe");
    case Fault::kThrowNumber: throw 42;
    case Fault::kCommError: return {StatusCode::kCommFailure, "a link broke, says the script"};
    case Fault::kOwnError: return {StatusCode::kInternal, "ERROR_XYZ of a library of the trainer's own"};
    case Fault::kInterrupted: return {StatusCode::kInterrupted, "interrupted, says the script"};
    case Fault::kAbort: AbortGroup(); return Status::Ok();
    case Fault::kMemoryLow:
      std::fill(weights_, weights_ + kCount, std::numeric_limits<float>::quiet_NaN());
      return agent_->ReportMemoryError({"weights"}, "double bit error, says the script");
    case Fault::kMemoryHigh:
      std::fill(weights_, weights_ + kCount, std::numeric_limits<float>::quiet_NaN());
      std::fill(momentum_, momentum_ + kCount, std::numeric_limits<float>::quiet_NaN());
      return agent_->ReportMemoryError({}, "device memory lost, says the script");
  }
  return Status::Ok();
}

}  // namespace kintsugi::inproc
