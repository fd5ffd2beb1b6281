// Trainer: one rank's training step, stage by stage, so that a caller can put its gate, its commit and its faults
// between any two of them.
//
//   Forward(k)  Backward()  SyncGradients()  SyncNorm()
//   | gate |  UpdatePiece(0 .. n-1)  FinishUpdate()  | commit |  SyncParameters()
//
// What survives a step is the optimizer state (registered, replicated), the dropout generator and the place in the data
// (mirrored) and nothing else: parameters are derived from the masters by SyncParameters, the learning rate from the
// step's number. A stage that fails leaves those alone, so a step may be abandoned anywhere before its update and
// started again with Forward(k) once the generator is back at step k - 1.
//
// Threads: one thread runs all stages.
// Ownership: owns parameters, gradients and activations, and the optimizer state unless an allocator is given. The text
// and the groups must outlive their use.
// Errors: a stage returns the failure of its group, and of a device, at once and unchanged. On the host the update
// itself cannot fail.
// Units: losses in nats per byte; steps count from 1.
// Invariants: equal inputs give equal bits, on every run and on every rank that holds the same shard.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "integrations/examples/byte_lm/adam_shard.h"
#include "integrations/examples/byte_lm/batch_iterator.h"
#include "integrations/examples/byte_lm/collectives.h"
#include "integrations/examples/byte_lm/compute.h"
#include "integrations/examples/byte_lm/config.h"
#include "integrations/examples/byte_lm/data_cursor.h"
#include "integrations/examples/byte_lm/digest.h"
#include "integrations/examples/byte_lm/dropout.h"
#include "integrations/examples/byte_lm/model.h"
#include "integrations/examples/byte_lm/rank_layout.h"
#include "integrations/examples/byte_lm/sampler.h"
#include "integrations/examples/byte_lm/text_data.h"

namespace kintsugi::byte_lm {

// The groups of one generation; replaced as a whole after every rebuild.
struct Groups {
  Collectives* data_parallel = nullptr;    // RankLayout::DataParallelGroup
  Collectives* tensor_parallel = nullptr;  // RankLayout::TensorParallelGroup
  Collectives* shard = nullptr;            // RankLayout::ShardGroup
};

// Gives `count` zeroed floats on a 64-byte boundary that outlive the trainer. `name` is master, exp_avg or exp_avg_sq.
using StateAllocator = std::function<Result<float*>(const std::string& name, size_t count)>;

struct TrainerOptions {
  ModelConfig model;
  TrainConfig train;
  RankLayout layout;
  StateAllocator allocate_state;      // in the compute's memory; empty: the trainer's own
  Compute<float>* compute = nullptr;  // null: the host; outlives the trainer
};

class Trainer {
 public:
  // Step 0, computed from the seed without communication. Give groups before the first stage.
  static Result<std::unique_ptr<Trainer>> Create(const TrainerOptions& options, const TextData& text);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void SetGroups(const Groups& groups) { groups_ = groups; }
  // Among other ranks from the next step on, with so many windows each: the shard stays what it is, and so does the
  // batch of all together. REQUIRES: no stage is under way; the layout's shard is this one's.
  void MoveTo(const RankLayout& layout, int64_t batch);

  // The stages of one step, in order. REQUIRES: groups are set and the stages before returned ok.
  Status Forward(Step step);
  Status Backward();
  // What SyncGradients gives to the data-parallel group: gradients and loss, in the compute's memory.
  std::span<float> given() { return {gradients_.data(), gradients_.size()}; }
  Status SyncGradients();  // mean over the data-parallel group; settles loss()
  Status SyncNorm();       // global norm, and from it the clipping
  size_t piece_count() const { return optimizer_.pieces().size(); }
  void UpdatePiece(size_t index);
  Status FinishUpdate();    // the pieces are done, on a device too; an abort does not end what is only arithmetic
  Status SyncParameters();  // parameters from the masters of the shard group; also after a repair or a load

  // In place of all stages: the step is empty, and its batch is passed by.
  void PassBy(Step step) { cursor_.Begin(step); }

  // Global mean loss of the step whose SyncGradients came last: the same bits on every rank.
  double loss() const { return loss_; }
  double gradient_norm() const { return gradient_norm_; }
  // The norm was not finite: every rank leaves its state as it is and commits an empty update.
  bool skips_update() const { return skips_update_; }
  double learning_rate() const { return update_.learning_rate; }
  // Windows that this rank used in the step of the last Forward.
  const std::vector<uint64_t>& sample_ids() const { return batch_.sample_ids; }
  // Bytes that all ranks together learn from in one step.
  int64_t GlobalTokensPerStep() const;

  // What to register: optimizer state, and the dropout generator as a mirrored object.
  std::vector<ShardedTensor> StateTensors() const;
  ShardedObject DropoutObject();
  // How far the run has come in its data, counted in samples.
  ShardedObject DataObject();
  DropoutGenerator& dropout() { return dropout_; }

  // Everything random and derived back to step 0 without communication: for a rank whose memory is untrusted.
  void Reinitialize();

  // Computed over copies on the host. All zeros after an error of a device.
  Digest StateDigest() const;
  Digest ParametersDigest() const;
  // Collective over the tensor-parallel group.
  Result<std::string> Generate(const SampleOptions& options);

  const ParameterTable& table() const { return table_; }
  const AdamShard& optimizer() const { return optimizer_; }
  const RankLayout& layout() const { return options_.layout; }
  const BatchIterator& batches() const { return batches_; }
  // In the compute's memory.
  const float* parameters() const { return parameters_.data(); }
  const float* gradients() const { return gradients_.data(); }

 private:
  struct State {
    OptimizerState pointers;
    std::vector<ComputeArray<float>> owned;
  };
  static Compute<float>& ComputeOf(const TrainerOptions& options) {
    return options.compute ? *options.compute : HostCompute<float>();
  }
  static Result<State> AllocateState(const TrainerOptions& options, size_t count);
  Trainer(const TrainerOptions& options, ParameterTable table, BatchIterator batches, State state);

  TrainerOptions options_;
  Compute<float>& compute_;
  const ParameterTable table_;
  BatchIterator batches_;
  State state_;
  std::unique_ptr<Model<float>> model_;
  AdamShard optimizer_;
  DropoutGenerator dropout_;
  DataCursor cursor_;
  ComputeArray<float> parameters_;
  ComputeArray<double> loss_sum_;  // of this rank's last forward pass, one number
  ComputeArray<float> gradients_;  // one element longer than the parameters: the loss travels with the gradients
  Groups groups_;
  Batch batch_;
  UpdateScalars update_;
  double loss_ = 0;
  double gradient_norm_ = 0;
  bool skips_update_ = false;
};

}  // namespace kintsugi::byte_lm
