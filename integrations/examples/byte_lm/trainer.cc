#include "integrations/examples/byte_lm/trainer.h"

#include <cmath>
#include <utility>

#include "integrations/examples/byte_lm/cpu.h"
#include "integrations/examples/byte_lm/initialize.h"
#include "integrations/examples/byte_lm/schedule.h"
#include "integrations/examples/byte_lm/state_tensors.h"
#include "runtime/base/check.h"

namespace kintsugi::byte_lm {

Result<std::unique_ptr<Trainer>> Trainer::Create(const TrainerOptions& options, const TextData& text) {
  KINTSUGI_RETURN_IF_ERROR(CheckCpu());
  KINTSUGI_RETURN_IF_ERROR(Validate(options.model, options.layout.tp_size));
  KINTSUGI_RETURN_IF_ERROR(Validate(options.train));
  KINTSUGI_ASSIGN_OR_RETURN(BatchIterator batches,
                            BatchIterator::Create(text, options.train.seed, options.model.context, options.train.batch,
                                                  options.layout.dp_size));
  ParameterTable table(options.model, options.layout.tp_rank, options.layout.tp_size, options.layout.shards());
  KINTSUGI_ASSIGN_OR_RETURN(State state, AllocateState(options, table.ShardRange(0).size()));
  return std::unique_ptr<Trainer>(new Trainer(options, std::move(table), std::move(batches), std::move(state)));
}

Result<Trainer::State> Trainer::AllocateState(const TrainerOptions& options, size_t count) {
  State state;
  const std::pair<const char*, float**> arrays[] = {{"master", &state.pointers.master},
                                                    {"exp_avg", &state.pointers.exp_avg},
                                                    {"exp_avg_sq", &state.pointers.exp_avg_sq}};
  for (const auto& [name, pointer] : arrays) {
    if (options.allocate_state) {
      KINTSUGI_ASSIGN_OR_RETURN(*pointer, options.allocate_state(name, count));
    } else {
      state.owned.emplace_back(count);
      *pointer = state.owned.back().data();
    }
  }
  return state;
}

Trainer::Trainer(const TrainerOptions& options, ParameterTable table, BatchIterator batches, State state)
    : options_(options), table_(std::move(table)), batches_(std::move(batches)), state_(std::move(state)),
      model_(options.model, table_, options.train.batch),
      optimizer_(options.train, table_, options.layout.shard(), state_.pointers),
      dropout_(options.train.seed, options.layout.dp_rank), parameters_(table_.flat_size()),
      gradients_(table_.flat_size() + 1) {
  Reinitialize();
}

void Trainer::Reinitialize() {
  InitializeParameters(table_, options_.train.seed, parameters_.data());
  optimizer_.Initialize(parameters_.data());
  dropout_ = DropoutGenerator(options_.train.seed, options_.layout.dp_rank);
}

Status Trainer::Forward(Step step) {
  KINTSUGI_CHECK(groups_.data_parallel != nullptr && groups_.tensor_parallel != nullptr && groups_.shard != nullptr,
                 "byte_lm: SetGroups comes before the first step");
  batches_.Fill(step, options_.layout.dp_rank, &batch_);
  update_.step = static_cast<int64_t>(step.value());
  update_.learning_rate = LearningRate(options_.train, update_.step);
  return model_.Forward(parameters_.data(), batch_.windows, &dropout_, *groups_.tensor_parallel, &loss_);
}

Status Trainer::Backward() {
  return model_.Backward(parameters_.data(), *groups_.tensor_parallel, gradients_.data());
}

Status Trainer::SyncGradients() {
  float* loss = &gradients_[table_.flat_size()];
  *loss = static_cast<float>(loss_);
  if (groups_.data_parallel->size() > 1) {
    KINTSUGI_RETURN_IF_ERROR(groups_.data_parallel->AllReduceSum(gradients_.data(), gradients_.size()));
    const float share = 1.0f / static_cast<float>(options_.layout.dp_size);
    for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i] *= share;
  }
  loss_ = *loss;
  return Status::Ok();
}

Status Trainer::SyncNorm() {
  const double mine = optimizer_.SumOfSquares(gradients_.data());
  KINTSUGI_ASSIGN_OR_RETURN(const double shards, GatherSum(*groups_.shard, mine));
  KINTSUGI_ASSIGN_OR_RETURN(const double total, GatherSum(*groups_.tensor_parallel, shards));
  gradient_norm_ = std::sqrt(total);
  skips_update_ = !std::isfinite(gradient_norm_);
  update_.gradient_scale = ClipScale(gradient_norm_, options_.train.gradient_clip);
  return Status::Ok();
}

void Trainer::UpdatePiece(size_t index) {
  if (!skips_update_) optimizer_.Update(index, update_, gradients_.data());
}

Status Trainer::SyncParameters() {
  const FlatSpan range = optimizer_.range();
  return groups_.shard->AllGather(optimizer_.state().master, range.size(), parameters_.data());
}

int64_t Trainer::GlobalTokensPerStep() const {
  return options_.train.batch * options_.layout.dp_size * options_.model.context;
}

std::vector<ShardedTensor> Trainer::StateTensors() const {
  return byte_lm::StateTensors(table_, optimizer_, options_.layout);
}

ShardedObject Trainer::DropoutObject() {
  ShardedObject object;
  object.key = "dropout";
  object.kind = ObjectKind::kMirrored;
  object.context = &dropout_;
  object.capture = [](void* context, std::vector<uint8_t>* out) {
    static_cast<const DropoutGenerator*>(context)->Capture(out);
  };
  object.restore = [](void* context, const uint8_t* bytes, uint64_t size_bytes) {
    return static_cast<DropoutGenerator*>(context)->Restore(bytes, size_bytes);
  };
  return object;
}

Result<std::string> Trainer::Generate(const SampleOptions& options) {
  Sampler sampler(options_.model, table_);
  return sampler.Generate(parameters_.data(), options, *groups_.tensor_parallel);
}

}  // namespace kintsugi::byte_lm
