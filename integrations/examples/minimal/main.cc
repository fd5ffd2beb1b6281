// The smallest trainer that survives: a line fitted to generated points by data-parallel gradient descent.
//   kintsugi run --nproc 2 --inject kill:1@5:update -- minimal_trainer
#include <kintsugi/kintsugi.h>

#include <cstdio>

using namespace kintsugi;

struct Line {
  Agent& agent;
  float* weights;                    // slope and offset: the whole state, the same on every rank
  std::unique_ptr<GlooGroup> world;  // one per generation
  GlooDevice device;                 // what an incident aborts: it outlives the group

  Status Step(kintsugi::Step step) {
    KINTSUGI_RETURN_IF_ERROR(agent.BeginStep(step));
    KINTSUGI_RETURN_IF_ERROR(agent.Mark(step, TrainPhase::kForward));
    const float x = static_cast<float>((step.value() * 7 + agent.rank().value() * 3) % 10) / 10;
    const float error = weights[0] * x + weights[1] - (2 * x + 1);
    float sums[] = {error * x, error, error * error};
    KINTSUGI_RETURN_IF_ERROR(world->AllReduceSum(sums, 3));
    const uint64_t samples[] = {step.value() * agent.world_size() + agent.rank().value()};
    KINTSUGI_RETURN_IF_ERROR(agent.Report(step, sums[2], samples));
    KINTSUGI_RETURN_IF_ERROR(agent.BeginUpdate(step));  // all ranks hold these gradients: each can finish alone
    weights[0] -= 0.1f * sums[0];
    KINTSUGI_RETURN_IF_ERROR(agent.Mark(step, TrainPhase::kUpdate));
    weights[1] -= 0.1f * sums[1];
    return agent.EndUpdate(step);
  }
};

static Result<int> Train() {
  KINTSUGI_ASSIGN_OR_RETURN(const AgentOptions options, AgentOptions::FromEnvironment());
  KINTSUGI_ASSIGN_OR_RETURN(auto agent, Join(options));
  KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, agent->AllocateState(2 * sizeof(float)));
  Line line{*agent, static_cast<float*>(memory.data), nullptr, nullptr};

  std::vector<Rank> everyone;
  for (int rank = 0; rank < agent->world_size(); ++rank) everyone.push_back(Rank(rank));
  KINTSUGI_RETURN_IF_ERROR(agent->SetReplicaLayout(0, everyone, agent->world_size()));
  KINTSUGI_RETURN_IF_ERROR(agent->RegisterTensor(
      {.key = "weights", .global_shape = {2}, .local_shape = {2}, .global_offset = {0}, .memory = memory}));

  const auto on = [&](HandlerKind kind, HandlerFunction handler) { return agent->RegisterHandler(kind, handler, &line); };
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kStop, [](HandlerContext&, void* self) {
    if (auto& device = static_cast<Line*>(self)->device) device->Abort();  // whoever waits in a collective returns
    return Status::Ok();
  }));
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kClean, [](HandlerContext&, void* self) {
    static_cast<Line*>(self)->world.reset();
    return Status::Ok();
  }));
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kRebuildGroup, [](HandlerContext& call, void* self) {
    GlooGroupOptions group{.prefix = "world", .rank = call.rank.value(), .size = call.world_size,
                           .deadline = call.deadline, .cancel = call.cancel};
    KINTSUGI_ASSIGN_OR_RETURN(static_cast<Line*>(self)->world, GlooGroup::Connect(*call.store, group));
    static_cast<Line*>(self)->device = static_cast<Line*>(self)->world->device();
    return Status::Ok();
  }));
  KINTSUGI_RETURN_IF_ERROR(on(HandlerKind::kRollback, [](HandlerContext&, void*) { return Status::Ok(); }));

  const Status trained = agent->Run([](Step first, void* self) {
    for (Step step = first.Next(); step.value() <= 20; step = step.Next())
      KINTSUGI_RETURN_IF_ERROR(static_cast<Line*>(self)->Step(step));
    return Status::Ok();
  }, &line);
  if (trained.ok() && agent->rank() == Rank(0)) std::printf("y = %.9g x + %.9g\n", line.weights[0], line.weights[1]);
  if (!trained.ok()) std::fprintf(stderr, "minimal_trainer: %s\n", trained.ToString().c_str());
  return agent->exit_code();
}

int main() {
  const Result<int> exit_code = Train();
  if (exit_code.ok()) return *exit_code;
  std::fprintf(stderr, "minimal_trainer: %s\n", exit_code.status().ToString().c_str());
  return 1;
}
