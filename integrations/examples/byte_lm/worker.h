// Worker: one rank of byte_lm under Kintsugi: what it registers, its handlers, and its training loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "integrations/cpp/kintsugi.h"
#include "integrations/examples/byte_lm/device/device_session.h"
#include "integrations/examples/byte_lm/hold.h"
#include "integrations/examples/byte_lm/process_groups.h"
#include "integrations/examples/byte_lm/trainer.h"

namespace kintsugi::byte_lm {

struct WorkerOptions {
  ModelConfig model;
  TrainConfig train;
  int tensor_parallel = 1;
  int replicas = 0;         // 0: the fewest, two or more, that fit
  bool elastic = false;     // offers to go on with fewer ranks, and the same batch of all together
  bool any_layout = false;  // offers to go on with any ranks, with the optimizer's shards cut anew
  bool gate = true;
  uint64_t ballast_mib = 0;         // extra registered state, for transfer measurements
  int sample_count = 1;             // texts to write after training, by rank 0
  uint64_t step_delay_us = 0;       // makes steps longer without work, for measurements
  double reject_norm = 0;           // steps whose gradients' norm is larger, or no number, are refused; 0: none are
  std::optional<int> reject_most;   // steps may be refused, and so many be left out; none: 10, with reject_norm
  std::vector<uint64_t> leave_out;  // steps that are passed by, for tests
  std::vector<uint64_t> poison;     // steps whose batch is no good, on the last rank, for tests
  std::vector<Hold> holds;          // ranks kept back, for tests
  device::DeviceSession* device = nullptr;               // null: on the host; outlives agent and worker
  std::function<void(Generation, double)> on_connected;  // milliseconds that a generation's groups took; may be empty
  std::function<void(Step)> on_step;  // called at the top of every step, for measurements; may be empty
};

class Worker {
 public:
  static Result<std::unique_ptr<Worker>> Create(Agent& agent, const WorkerOptions& options, const TextData& text);
  // Trains to the end under the agent's guard.
  Status Run();
  // What rank 0 wrote after training; empty on others.
  const std::vector<std::string>& samples() const { return samples_; }

 private:
  // `crew`: the ranks by number.
  Worker(Agent& agent, const WorkerOptions& options, const TextData& text, int64_t global_batch,
         const RankLayout& layout, std::vector<Rank> crew);
  // As the run stands among so many ranks: on the host, in memory of its own.
  Result<std::unique_ptr<Trainer>> MakeTrainer(const RankLayout& layout);
  // What a trainer registers there, with the ranks by number.
  CutState StateOf(Trainer& trainer, const RankLayout& layout, const std::vector<Rank>& crew) const;
  Status Register();
  Status RegisterBallast();
  Status RegisterHandlers();
  Status RebuildGroups(HandlerContext& call);
  Status Connect(HandlerContext& call, Trainer& trainer);
  // The shards are cut anew: a trainer for those that take part then, which trains once their state is in it.
  Status CutAnew(HandlerContext& call, const RankLayout& layout);
  Status Rollback(const HandlerContext& call);
  // It trains from here on, or that came to nothing, as far as the context says.
  void SettleNext(const HandlerContext& call);
  void KeepNext();
  // Which worlds it can go on in: any number of whole copies of the state that divides the batch.
  Status Offer();
  // State memory: on the host where a replica's process can map it, the fastest to repair from; or the device's.
  Result<Memory> AllocateState(uint64_t size_bytes);
  // Completes the description of memory inside what AllocateState gave.
  void DescribeMemory(Memory* memory) const;
  Status Loop(Step first);
  Status TrainStep(Step step);
  // The step is empty: what a plain loop does by `continue`.
  Status PassBy(Step step);
  // Of what this rank gives to the sum over data-parallel ranks the agent knows, on the host.
  Status BeginSum(Step step);
  Status Update(Step step);
  // The commit: on a device it counts once the update's last kernel is done.
  Status Commit(Step step);
  // Tells the agent of a device's error, so that it may judge what follows; gives what the loop returns.
  Status Judge(Status status);
  Status PassGate(Step step);
  // Where a test keeps this rank back: waits for the groups' abort.
  Status HoldBack(Hold::Point point, Step step);
  Status WriteSamples();

  struct Next {
    Generation generation;
    RankLayout layout;
    std::unique_ptr<Trainer> trainer;
  };

  Agent& agent_;
  const WorkerOptions options_;
  const TextData& text_;
  const int64_t global_batch_;
  RankLayout layout_;
  std::vector<Rank> crew_;  // by number
  const std::unique_ptr<ProcessGroups> groups_;
  Holds holds_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<Next> next_;
  std::vector<std::string> samples_;
};

}  // namespace kintsugi::byte_lm
