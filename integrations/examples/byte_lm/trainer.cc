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
  std::unique_ptr<Trainer> trainer(new Trainer(options, std::move(table), std::move(batches), std::move(state)));
  KINTSUGI_RETURN_IF_ERROR(trainer->compute_.status());
  return trainer;
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
      state.owned.emplace_back(ComputeOf(options), count);
      *pointer = state.owned.back().data();
      if (*pointer == nullptr) return ComputeOf(options).status();
    }
  }
  return state;
}

Trainer::Trainer(const TrainerOptions& options, ParameterTable table, BatchIterator batches, State state)
    : options_(options),
      compute_(ComputeOf(options)),
      table_(std::move(table)),
      batches_(std::move(batches)),
      state_(std::move(state)),
      model_(std::make_unique<Model<float>>(options.model, table_, options.train.batch, compute_)),
      optimizer_(options.train, table_, options.layout.shard(), state_.pointers, compute_),
      dropout_(options.train.seed, options.layout.dp_rank, options.layout.dp_size),
      cursor_(batches_.global_batch()),
      parameters_(compute_, table_.flat_size()),
      loss_sum_(compute_, 1),
      gradients_(compute_, table_.flat_size() + 1) {
  Reinitialize();
}

void Trainer::Reinitialize() {
  std::vector<float> initial(table_.flat_size());
  InitializeParameters(table_, options_.train.seed, initial.data());
  compute_.Upload(parameters_.data(), initial.data(), initial.size() * sizeof(float));
  optimizer_.Initialize(parameters_.data());
  dropout_ = DropoutGenerator(options_.train.seed, options_.layout.dp_rank, options_.layout.dp_size);
  cursor_ = DataCursor(batches_.global_batch());
}

void Trainer::MoveTo(const RankLayout& layout, int64_t batch) {
  KINTSUGI_CHECK(layout.shards() == options_.layout.shards() && layout.shard() == options_.layout.shard(),
                 "byte_lm: a rank moves to a layout in which it would hold another shard");
  batches_.Divide(batch, layout.dp_size);
  KINTSUGI_CHECK(batches_.global_batch() == static_cast<uint64_t>(options_.train.batch * options_.layout.dp_size),
                 "byte_lm: the batch of all ranks together changes with their number");
  options_.layout = layout;
  options_.train.batch = batch;
  model_ = std::make_unique<Model<float>>(options_.model, table_, batch, compute_);
  // The stream is one for all ranks; each takes another stretch of it from now on.
  std::vector<uint8_t> place;
  dropout_.Capture(&place);
  dropout_ = DropoutGenerator(options_.train.seed, layout.dp_rank, layout.dp_size);
  KINTSUGI_CHECK(dropout_.Restore(place.data(), place.size()).ok(), "byte_lm: a generator does not take its own place");
}

Status Trainer::Forward(Step step) {
  KINTSUGI_CHECK(groups_.data_parallel != nullptr && groups_.tensor_parallel != nullptr && groups_.shard != nullptr,
                 "byte_lm: SetGroups comes before the first step");
  batches_.FillFrom(cursor_.Begin(step), options_.layout.dp_rank, &batch_);
  update_.step = static_cast<int64_t>(step.value());
  update_.learning_rate = LearningRate(options_.train, update_.step);
  return model_->Forward(parameters_.data(), batch_.windows, &dropout_, *groups_.tensor_parallel, loss_sum_.data());
}

Status Trainer::Backward() {
  KINTSUGI_RETURN_IF_ERROR(model_->Backward(parameters_.data(), *groups_.tensor_parallel, gradients_.data()));
  compute_.Narrow(loss_sum_.data(), gradients_.data() + table_.flat_size());
  return Status::Ok();
}

Status Trainer::SyncGradients() {
  if (groups_.data_parallel->size() > 1) {
    KINTSUGI_RETURN_IF_ERROR(groups_.data_parallel->AllReduceSum(gradients_.data(), gradients_.size()));
    compute_.Scale(gradients_.size(), 1.0f / static_cast<float>(options_.layout.dp_size), gradients_.data());
  }
  float mean = 0;
  KINTSUGI_RETURN_IF_ERROR(compute_.Download(&mean, gradients_.data() + table_.flat_size(), sizeof(mean)));
  loss_ = mean;
  return Status::Ok();
}

Status Trainer::SyncNorm() {
  const double mine = optimizer_.SumOfSquares(gradients_.data());
  KINTSUGI_RETURN_IF_ERROR(compute_.Settle());
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

Status Trainer::FinishUpdate() { return compute_.SettleThroughAbort(); }

Status Trainer::SyncParameters() {
  const FlatSpan range = optimizer_.range();
  KINTSUGI_RETURN_IF_ERROR(groups_.shard->AllGather(optimizer_.state().master, range.size(), parameters_.data()));
  return compute_.Settle();
}

Digest Trainer::StateDigest() const {
  std::vector<float> parameters(parameters_.size());
  if (!compute_.Download(parameters.data(), parameters_.data(), parameters.size() * sizeof(float)).ok()) return {};
  const OptimizerState& live = optimizer_.state();
  std::vector<float> copies[3];
  const float* const arrays[] = {live.master, live.exp_avg, live.exp_avg_sq};
  for (size_t i = 0; i < 3; ++i) {
    copies[i].resize(optimizer_.range().size());
    if (!compute_.Download(copies[i].data(), arrays[i], copies[i].size() * sizeof(float)).ok()) return {};
  }
  return DigestState(table_, parameters.data(), optimizer_.pieces(),
                     {copies[0].data(), copies[1].data(), copies[2].data()});
}

Digest Trainer::ParametersDigest() const {
  std::vector<float> parameters(parameters_.size());
  if (!compute_.Download(parameters.data(), parameters_.data(), parameters.size() * sizeof(float)).ok()) return {};
  return DigestParameters(table_, parameters.data());
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
  object.take_over = TakeOver::kRankZero;  // one stream, of which each rank takes its stretch
  object.context = &dropout_;
  object.capture = [](void* context, std::vector<uint8_t>* out) {
    static_cast<const DropoutGenerator*>(context)->Capture(out);
  };
  object.restore = [](void* context, const uint8_t* bytes, uint64_t size_bytes) {
    return static_cast<DropoutGenerator*>(context)->Restore(bytes, size_bytes);
  };
  return object;
}

ShardedObject Trainer::DataObject() {
  ShardedObject object;
  object.key = "data_position";
  object.kind = ObjectKind::kMirrored;
  object.take_over = TakeOver::kRankZero;
  object.context = &cursor_;
  object.capture = [](void* context, std::vector<uint8_t>* out) {
    static_cast<const DataCursor*>(context)->Capture(out);
  };
  object.restore = [](void* context, const uint8_t* bytes, uint64_t size_bytes) {
    return static_cast<DataCursor*>(context)->Restore(bytes, size_bytes);
  };
  return object;
}

Result<std::string> Trainer::Generate(const SampleOptions& options) {
  Sampler sampler(options_.model, table_, compute_);
  return sampler.Generate(parameters_.data(), options, *groups_.tensor_parallel);
}

}  // namespace kintsugi::byte_lm
