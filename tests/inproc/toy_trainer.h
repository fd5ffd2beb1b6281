// ToyTrainer: a trainer of one rank on a thread of its own, with a state of a few dozen floats whose every bit depends on
// every earlier step of every rank: a gradient summed over all ranks, noise from a generator that only this rank has
// (mirrored), a schedule that follows from the step (derived).
//
// Threads: Start and Wait from the test's; the rest runs on the trainer's own, Abort on the agent's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "integrations/cpp/kintsugi.h"
#include "tests/inproc/collective.h"
#include "tests/inproc/script.h"

namespace kintsugi::inproc {

class ToyTrainer;

// Called on the trainer's thread; null: nothing special.
struct Tweaks {
  std::function<void(ToyTrainer&)> before_registration;  // may change the state or the descriptions
  std::function<Status(ToyTrainer&)> after_registration;
  std::function<Status(HandlerKind, HandlerContext&, ToyTrainer&)> handler;  // before the trainer's own
  std::function<Status(ToyTrainer&, Step)> at_step;                          // after BeginStep
  // Before the gradients are summed, and once they are.
  std::function<Status(ToyTrainer&, Step, std::vector<float>*)> given;
  std::function<Status(ToyTrainer&, Step, const std::vector<float>&)> summed;
  std::function<void(ToyTrainer&)> after_run;                                // Run has returned, the agent still lives
  bool register_handlers = true;
  // State in device memory, which must be readable as if it were the host's: how it is allocated (at least so many
  // bytes) and reached. Null: host memory.
  std::function<Memory(uint64_t size_bytes)> allocate;
  std::shared_ptr<const DeviceMemory> device;
  // What stands behind an update's inputs and behind the update; null: the host does it.
  std::function<const DeviceFence*(ToyTrainer&, Step)> input_fence;
  std::function<const DeviceFence*(ToyTrainer&, Step)> update_fence;
};

struct TrainerSetup {
  AgentOptions agent;
  uint64_t steps = 6;
  int replicas = 2;
  GateMode gate = GateMode::kTrainer;
  bool mirrored = true;  // false: the generator follows from the step
  Tweaks tweaks;
};

class ToyTrainer {
 public:
  static constexpr size_t kCount = 32;  // floats in each of the two tensors (in those of Tweaks::allocate the first 32)

  ToyTrainer(TrainerSetup setup, Hub& hub, Script& script);
  ~ToyTrainer();

  void Start();
  // After the thread has ended: what Join, a registration or Run gave.
  Status Wait();

  Agent& agent() { return *agent_; }
  bool joined() const { return joined_; }
  int exit_code() const { return exit_code_; }
  int rank() const { return setup_.agent.rank.value(); }
  JoinKind join_kind() const { return join_kind_; }
  uint64_t rng() const { return rng_; }
  uint64_t updates() const { return updates_; }  // that this thread committed, repeats included
  std::vector<float> State() const;

  // For tweaks.
  std::vector<ShardedTensor>& descriptions() { return descriptions_; }
  float* momentum() { return momentum_; }
  float* weights() { return weights_; }
  std::vector<Rank>& group() { return group_; }
  TrainerSetup& setup() { return setup_; }

 private:
  Status Main();
  Status Describe();
  Status Register();
  Status RegisterHandlers();
  Status Handle(HandlerKind kind, HandlerContext& call);
  Status Rebuild(HandlerContext& call);
  Status Loop(Step first);
  Status TrainStep(Step step);
  Status PassBy(Step step);
  std::vector<float> Gradient(Step step);
  Status Update(Step step, const std::vector<float>& gradient);
  Status Gate(Step step);
  Status Pass(Step step, Point point);
  void AbortGroup();
  std::shared_ptr<Group> group_now() const;
  int stride() const { return setup_.agent.world_size / setup_.replicas; }
  int shard() const { return rank() % stride(); }

  TrainerSetup setup_;
  Hub& hub_;
  Script& script_;
  std::unique_ptr<Agent> agent_;
  std::atomic<bool> joined_{false};
  int exit_code_ = -1;
  JoinKind join_kind_ = JoinKind::kFresh;
  float* weights_ = nullptr;
  float* momentum_ = nullptr;
  std::vector<float> momentum_heap_, final_state_;
  uint64_t rng_ = 0;
  uint64_t schedule_ = 0;  // derived: the newest committed step
  std::atomic<uint64_t> updates_{0};
  std::vector<ShardedTensor> descriptions_;
  std::vector<Rank> group_;
  mutable std::mutex mutex_;  // guards members_
  std::shared_ptr<Group> members_;
  Status result_;
  std::thread thread_;
};

}  // namespace kintsugi::inproc
