// A trainer of somebody else that reshards in every step, and through a program of names: what each rank has in columns, all have in rows.
#include <kintsugi/integrations/cpp/reshard.h>
#include <kintsugi/kintsugi.h>
#include <kintsugi/replica/layout/shard.h>

#include <cstdio>
#include <vector>

namespace {

using namespace kintsugi;

constexpr int64_t kRows = 12, kColumns = 6;
constexpr uint64_t kSteps = 12;

struct Trainer {
  Agent* agent;
  ReshardGroup group;
  float* weights;  // registered, the same on all ranks
  bool right = true;

  explicit Trainer(Agent& its) : agent(&its), group(its) {
    const auto memory = its.AllocateState(kRows * kColumns * sizeof(float));
    weights = static_cast<float*>(memory->data);
    ShardedTensor tensor = *layout::MakeShard({.key = "weights",
                                               .local_shape = {kRows, kColumns},
                                               .global_shape = {kRows, kColumns},
                                               .global_offset = {0, 0}});
    tensor.memory = *memory;
    right = its.RegisterTensor(tensor).ok();
    std::vector<Rank> ranks;
    for (int rank = 0; rank < its.world_size(); ++rank) ranks.push_back(Rank(rank));
    right = right && its.SetReplicaLayout(0, ranks, its.world_size()).ok();
  }

  Status ReshardOnce(Step step) {
    const int64_t ranks = agent->world_size(), rank = agent->rank().value();
    const int64_t wide = kColumns / ranks, high = kRows / ranks;
    std::vector<float> columns, rows(static_cast<size_t>(high * kColumns), -1);
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t column = 0; column < wide; ++column)
        columns.push_back(weights[row * kColumns + rank * wide + column]);
    const layout::TensorData held{
        DType::kFloat32, {kRows, wide}, {.data = columns.data(), .size_bytes = columns.size() * sizeof(float)}};
    const layout::TensorData asked{
        DType::kFloat32, {high, kColumns}, {.data = rows.data(), .size_bytes = rows.size() * sizeof(float)}};
    const std::vector<ShardedTensor> source = {*layout::FromShardWeight("w", held, 1, rank, ranks)};
    const bool renames = step.value() % 2 == 0;
    const std::vector<ShardedTensor> target = {*layout::FromShardWeight(renames ? "v" : "w", asked, 0, rank, ranks)};
    ReshardOptions options;
    if (renames) options.program = "w -> v";
    // Links of its own, or the group's.
    const auto done =
        step.value() == 1 ? Reshard(source, target, options, *agent) : Reshard(source, target, options, group);
    if (!done.ok()) return done.status();
    for (int64_t i = 0; i < high * kColumns; ++i)
      right = right && rows[static_cast<size_t>(i)] == weights[rank * high * kColumns + i];
    return right ? Status::Ok() : Status(StatusCode::kInternal, "other numbers have come");
  }

  Status Train(Step step) {
    if (Status status = agent->BeginStep(step); !status.ok()) return status;
    if (Status status = agent->EnterPhase(step, TrainPhase::kForward); !status.ok())
      return status;  // where --inject strikes
    if (Status status = ReshardOnce(step); !status.ok()) return status;
    if (Status status = agent->BeginUpdate(step); !status.ok()) return status;
    if (Status status = agent->EnterPhase(step, TrainPhase::kUpdate); !status.ok()) return status;
    for (int64_t i = 0; i < kRows * kColumns; ++i) weights[i] += static_cast<float>(i);
    return agent->EndUpdate(step);
  }

  static Status Loop(Step first, void* self) {
    for (Step step = first.Next(); step.value() <= kSteps; step = step.Next())
      if (Status status = static_cast<Trainer*>(self)->Train(step); !status.ok()) return status;
    return Status::Ok();
  }
};

Status Nothing(HandlerContext&, void*) { return Status::Ok(); }

}  // namespace

int main() {
  auto options = AgentOptions::FromEnvironment();
  if (!options.ok()) return std::printf("%s\n", options.status().ToString().c_str()), 1;
  auto agent = Join(*options);
  if (!agent.ok()) return std::printf("%s\n", agent.status().ToString().c_str()), 1;
  Trainer trainer(**agent);
  for (const HandlerKind kind : {HandlerKind::kStop, HandlerKind::kClean, HandlerKind::kRebuildGroup})
    if (!(*agent)->RegisterHandler(kind, Nothing, nullptr).ok()) return 1;
  const Status status = (*agent)->Run(Trainer::Loop, &trainer);
  if (!status.ok() || !trainer.right) return std::printf("%s\n", status.ToString().c_str()), 1;
  std::printf("rank %d has resharded to the end\n", (*agent)->rank().value());
  return (*agent)->exit_code();
}
