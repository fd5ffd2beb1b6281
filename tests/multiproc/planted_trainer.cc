// A trainer with one mistake, of those that people make, planted in it; without an argument it makes none. It fits a
// line to noisy points with momentum, so that it has what a trainer has: weights, an optimizer's state, a random
// generator and a sampler.
//
//   planted_trainer [tensor|update|random|sampler|clock|state|place|misplace|refuse|factory|gap]
//
// state: of an optimizer with two moments, the second one of parameter b is not registered.
// place: no mistake, but an object that is made anew where a checkpoint of other ranks is resumed from; misplace: the
// same, and the weights come to each other's places then, alike on every rank; refuse: the same, and rank 1 cannot.
// factory: no mistake, but the line is stored as two tensors, of which it is made; gap: they leave out one of its numbers.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "integrations/cpp/kintsugi.h"

using namespace kintsugi;

namespace {

constexpr uint64_t kSteps = 8;

// One number that moves with every step, kept as the run's object.
struct Moving {
  const char* key;
  uint64_t value;
  float* misplaced = nullptr;
  bool refuses = false;

  ShardedObject Object() {
    return {.key = key,
            .kind = ObjectKind::kMirrored,
            .capture =
                [](void* self, std::vector<uint8_t>* out) {
                  const auto* bytes = reinterpret_cast<const uint8_t*>(&static_cast<Moving*>(self)->value);
                  out->insert(out->end(), bytes, bytes + sizeof(uint64_t));
                },
            .restore = [](void* self, const uint8_t* bytes, uint64_t size_bytes) -> Status {
              if (size_bytes != sizeof(uint64_t)) return {StatusCode::kDataLoss, "another object's bytes"};
              std::memcpy(&static_cast<Moving*>(self)->value, bytes, sizeof(uint64_t));
              return Status::Ok();
            },
            .context = this,
            .take_over = TakeOver::kSameRank};
  }
};

class StderrLog final : public LogSink {
 public:
  void Write(LogLevel level, std::string_view line) override {
    if (level >= LogLevel::kWarning) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  }
};

// The object as a trainer would make it out of those of other ranks, while the tensors are loaded already.
Status TakeOverAll(void* self, const std::vector<SavedObject>& saved, std::vector<uint8_t>* out) {
  if (static_cast<Moving*>(self)->refuses) return {StatusCode::kDataLoss, "one rank alone cannot go on"};
  float* const weights = static_cast<Moving*>(self)->misplaced;
  if (weights) std::swap(weights[0], weights[1]);
  out->assign(saved.front().data, saved.front().data + saved.front().size_bytes);
  return Status::Ok();
}

struct Trainer {
  std::string mistake;
  GlooWorld world;
  std::unique_ptr<Agent> agent;
  float* line = nullptr;
  float* momentum = nullptr;
  float forgotten[2] = {0, 0};  // memory that nobody knows of
  Moving random{"random", 7};
  Moving sampler{"sampler", 0};

  bool Makes(const char* name) const { return mistake == name; }

  float Noise() {
    random.value = random.value * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(random.value >> 40) / static_cast<float>(1 << 24) / 10;
  }

  void MoveMomentum(const float* gradient) {
    for (int i = 0; i < 2; ++i) momentum[i] = 0.9f * momentum[i] + gradient[i];
  }

  Status Train(Step step) {
    KINTSUGI_RETURN_IF_ERROR(agent->BeginStep(step));
    KINTSUGI_RETURN_IF_ERROR(agent->EnterPhase(step, TrainPhase::kForward));
    const uint64_t sample = sampler.value++ * agent->world_size() + agent->rank().value();
    const float x = static_cast<float>(sample * 37 % 100) / 100;
    float error = line[0] * x + line[1] - (2 * x + 1 + Noise());
    if (Makes("clock")) error += static_cast<float>(std::chrono::system_clock::now().time_since_epoch().count() % 1000);
    float gradient[] = {error * x, error, error * error};
    KINTSUGI_RETURN_IF_ERROR(agent->EnterPhase(step, TrainPhase::kBackward));
    KINTSUGI_RETURN_IF_ERROR(world->AllReduceSum(gradient, 3));
    KINTSUGI_RETURN_IF_ERROR(agent->Report(step, gradient[2], {&sample, 1}));
    if (Makes("update")) MoveMomentum(gradient);
    KINTSUGI_RETURN_IF_ERROR(agent->EnterPhase(step, TrainPhase::kGate));

    KINTSUGI_RETURN_IF_ERROR(agent->BeginUpdate(step));
    if (!Makes("update")) MoveMomentum(gradient);
    KINTSUGI_RETURN_IF_ERROR(agent->EnterPhase(step, TrainPhase::kUpdate));
    for (int i = 0; i < 2; ++i) line[i] -= 0.05f * momentum[i];
    return agent->EndUpdate(step);
  }
};

Status Loop(Step first, void* trainer) {
  for (Step step = first.Next(); step <= Step(kSteps); step = step.Next())
    KINTSUGI_RETURN_IF_ERROR(static_cast<Trainer*>(trainer)->Train(step));
  return Status::Ok();
}

// Slope and offset of the line, each a tensor of one number.
Status BuildLine(const ShardedTensor& line, std::vector<ShardedTensor>* parts) {
  for (const char* name : {".slope", ".offset"}) {
    ShardedTensor part = line;
    part.key += name;
    part.global_shape = part.local_shape = {1};
    part.memory = {static_cast<float*>(line.memory.data) + parts->size(), sizeof(float)};
    parts->push_back(part);
  }
  return Status::Ok();
}

Status RegisterLine(Trainer& trainer) {
  KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, trainer.agent->AllocateState(2 * sizeof(float)));
  trainer.line = static_cast<float*>(memory.data);
  ShardedTensorFactory factory;
  factory.tensor = {.key = "line", .global_shape = {2}, .local_shape = {2}, .global_offset = {0}, .memory = memory};
  factory.build = BuildLine;
  if (trainer.Makes("gap"))
    factory.build = [](const ShardedTensor& line, std::vector<ShardedTensor>* parts) {
      KINTSUGI_RETURN_IF_ERROR(BuildLine(line, parts));
      parts->pop_back();
      return Status::Ok();
    };
  return RegisterFactory(*trainer.agent, factory);
}

Status Register(Trainer& trainer, const char* key, float** values) {
  KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, trainer.agent->AllocateState(2 * sizeof(float)));
  *values = static_cast<float*>(memory.data);
  return trainer.agent->RegisterTensor(
      {.key = key, .global_shape = {2}, .local_shape = {2}, .global_offset = {0}, .memory = memory});
}

Status Run(Trainer& trainer) {
  KINTSUGI_ASSIGN_OR_RETURN(const AgentOptions options, AgentOptions::FromEnvironment());
  KINTSUGI_ASSIGN_OR_RETURN(trainer.agent, Join(options, std::make_shared<StderrLog>()));
  Agent& agent = *trainer.agent;
  const bool is_built = trainer.Makes("factory") || trainer.Makes("gap");
  KINTSUGI_RETURN_IF_ERROR(is_built ? RegisterLine(trainer) : Register(trainer, "line", &trainer.line));
  trainer.momentum = trainer.forgotten;
  if (!trainer.Makes("tensor")) KINTSUGI_RETURN_IF_ERROR(Register(trainer, "momentum", &trainer.momentum));
  if (trainer.Makes("state"))
    for (const char* key : {"optimizer.exp_avg.a", "optimizer.exp_avg_sq.a", "optimizer.exp_avg.b"}) {
      float* unused = nullptr;
      KINTSUGI_RETURN_IF_ERROR(Register(trainer, key, &unused));
    }
  if (trainer.Makes("misplace")) trainer.random.misplaced = trainer.line;
  trainer.random.refuses = trainer.Makes("refuse") && agent.rank() == Rank(1);
  ShardedObject random = trainer.random.Object();
  if (trainer.Makes("misplace") || trainer.Makes("place") || trainer.Makes("refuse")) {
    random.take_over = TakeOver::kOwn;
    random.take_over_all = TakeOverAll;
  }
  if (!trainer.Makes("random")) KINTSUGI_RETURN_IF_ERROR(agent.RegisterObject(random));
  if (!trainer.Makes("sampler")) KINTSUGI_RETURN_IF_ERROR(agent.RegisterObject(trainer.sampler.Object()));
  trainer.random.value += agent.rank().value();
  std::vector<Rank> all;
  for (int rank = 0; rank < agent.world_size(); ++rank) all.push_back(Rank(rank));
  KINTSUGI_RETURN_IF_ERROR(agent.SetReplicaLayout(0, all, agent.world_size()));
  KINTSUGI_RETURN_IF_ERROR(trainer.world.RegisterWith(agent));
  return agent.Run(Loop, &trainer);
}

}  // namespace

int main(int argc, char** argv) {
  Trainer trainer;
  if (argc > 1) trainer.mistake = argv[1];
  const Status status = Run(trainer);
  if (!status.ok()) std::fprintf(stderr, "planted_trainer: %s\n", status.ToString().c_str());
  return trainer.agent ? trainer.agent->exit_code() : 1;
}
