// The smallest trainer that survives: a line fitted to points by data-parallel gradient descent. Try it with
//   kintsugi run --nproc 2 --inject kill:1@5:update -- minimal_trainer
#include <kintsugi/kintsugi.h>

#include <cstdio>

using namespace kintsugi;

struct Trainer {
  GlooWorld world;                // all ranks' group, connected anew in every incident
  std::unique_ptr<Agent> agent;
  float* line = nullptr;          // slope and offset: the whole state, equal on every rank

  Status Train(Step step) {
    KINTSUGI_RETURN_IF_ERROR(agent->BeginStep(step));
    const uint64_t sample = step.value() * agent->world_size() + agent->rank().value();
    const float x = static_cast<float>(sample * 37 % 100) / 100;
    const float error = line[0] * x + line[1] - (2 * x + 1);
    float gradient[] = {error * x, error, error * error};
    KINTSUGI_RETURN_IF_ERROR(world->AllReduceSum(gradient, 3));
    KINTSUGI_RETURN_IF_ERROR(agent->Report(step, gradient[2], {&sample, 1}));

    KINTSUGI_RETURN_IF_ERROR(agent->BeginUpdate(step));  // every rank holds the gradient: each can finish alone
    line[0] -= 0.2f * gradient[0];
    KINTSUGI_RETURN_IF_ERROR(agent->EnterPhase(step, TrainPhase::kUpdate));  // where --inject strikes
    line[1] -= 0.2f * gradient[1];
    return agent->EndUpdate(step);
  }
};

Status Loop(Step first, void* trainer) {
  for (Step step = first.Next(); step <= Step(100); step = step.Next())
    KINTSUGI_RETURN_IF_ERROR(static_cast<Trainer*>(trainer)->Train(step));
  return Status::Ok();
}

Status Run(Trainer& trainer) {
  KINTSUGI_ASSIGN_OR_RETURN(const AgentOptions options, AgentOptions::FromEnvironment());
  KINTSUGI_ASSIGN_OR_RETURN(trainer.agent, Join(options));
  Agent& agent = *trainer.agent;
  KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, agent.AllocateState(2 * sizeof(float)));
  trainer.line = static_cast<float*>(memory.data);
  KINTSUGI_RETURN_IF_ERROR(agent.RegisterTensor(
      {.key = "line", .global_shape = {2}, .local_shape = {2}, .global_offset = {0}, .memory = memory}));
  std::vector<Rank> all;
  for (int rank = 0; rank < agent.world_size(); ++rank) all.push_back(Rank(rank));
  KINTSUGI_RETURN_IF_ERROR(agent.SetReplicaLayout(0, all, agent.world_size()));
  KINTSUGI_RETURN_IF_ERROR(trainer.world.RegisterWith(agent));
  return agent.Run(Loop, &trainer);
}

int main() {
  Trainer trainer;
  const Status status = Run(trainer);
  if (status.ok())
    std::printf("y = %.9g x + %.9g\n", trainer.line[0], trainer.line[1]);
  else
    std::fprintf(stderr, "minimal_trainer: %s\n", status.ToString().c_str());
  return trainer.agent ? trainer.agent->exit_code() : 1;
}
