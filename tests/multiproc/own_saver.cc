// A trainer that writes and reads its checkpoints by itself, in a form that nobody else knows: a line of text, whose
// name says the step. Everything else of a repair stays with the defaults.
//
//   own_saver STEPS [save|repair]
//
// save, repair: the first rank that writes, or rank 1 in its repair, hangs in this handler, once, and hears nobody.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "integrations/cpp/kintsugi.h"

using namespace kintsugi;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kGroup = 32;  // samples of a step

struct Trainer {
  uint64_t steps = 0;
  std::string hangs_in;
  GlooWorld world;
  std::unique_ptr<Agent> agent;
  float* line = nullptr;
  HandlerRegistry::Entry usual;  // the repair that it takes the place of

  Status Train(Step step) {
    KINTSUGI_RETURN_IF_ERROR(agent->BeginStep(step));
    const uint64_t sample = step.value() * kGroup + static_cast<uint64_t>(agent->rank().value());
    const float x = static_cast<float>(sample * 37 % 100) / 100;
    const float error = line[0] * x + line[1] - (2 * x + 1);
    float gradient[] = {error * x, error, error * error};
    KINTSUGI_RETURN_IF_ERROR(world->AllReduceSum(gradient, 3));
    KINTSUGI_RETURN_IF_ERROR(agent->Report(step, gradient[2], {&sample, 1}));
    KINTSUGI_RETURN_IF_ERROR(agent->BeginUpdate(step));
    for (int i = 0; i < 2; ++i) line[i] -= 0.1f * gradient[i];
    KINTSUGI_RETURN_IF_ERROR(agent->EnterPhase(step, TrainPhase::kUpdate));
    usleep(10'000);
    return agent->EndUpdate(step);
  }
};

Status Loop(Step first, void* trainer) {
  auto* self = static_cast<Trainer*>(trainer);
  for (Step step = first.Next(); step <= Step(self->steps); step = step.Next())
    KINTSUGI_RETURN_IF_ERROR(self->Train(step));
  return Status::Ok();
}

fs::path FileOf(const HandlerContext& call) { return fs::path(call.directory) / ("line-" + call.step.ToString()); }

// The file says that somebody did.
void HangOnce(const Trainer& trainer, const char* handler) {
  if (trainer.hangs_in != handler || open("hung", O_CREAT | O_EXCL, 0600) < 0) return;
  while (true) pause();
}

Status Save(HandlerContext& call, void* trainer) {
  const auto* line = static_cast<Trainer*>(trainer)->line;
  if (call.entries.empty()) return Status::Ok();  // another rank writes the copy that all hold
  HangOnce(*static_cast<Trainer*>(trainer), "save");
  fs::create_directories(call.directory);
  std::ofstream file(FileOf(call).string() + ".part", std::ios::binary);
  file.write(reinterpret_cast<const char*>(line), 2 * sizeof(float));
  file.close();
  return file ? Status::Ok() : Status(StatusCode::kUnavailable, "the line could not be written");
}

Status Rename(HandlerContext& call, void*) {
  fs::rename(FileOf(call).string() + ".part", FileOf(call));
  return Status::Ok();
}

uint64_t NewestIn(const std::string& directory) {
  uint64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(directory))
    if (const std::string name = entry.path().filename();
        name.rfind("line-", 0) == 0 && entry.path().extension().empty())
      newest = std::max<uint64_t>(newest, std::strtoull(name.c_str() + 5, nullptr, 10));
  return newest;
}

// A resume leaves open which step it is; going back in a run does not.
Status Load(HandlerContext& call, float* line) {
  if (call.step == Step()) call.step = Step(NewestIn(call.directory));
  call.loaded_step = call.step;
  std::ifstream file(FileOf(call), std::ios::binary);
  file.read(reinterpret_cast<char*>(line), 2 * sizeof(float));
  return file ? Status::Ok() : Status(StatusCode::kNotFound, "no line in " + call.directory);
}

Status Repair(HandlerContext& call, void* trainer) {
  auto* self = static_cast<Trainer*>(trainer);
  if (self->agent->rank() == Rank(1)) HangOnce(*self, "repair");
  return call.directory.empty() ? self->usual.function(call, self->usual.context) : Load(call, self->line);
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
  trainer.usual = agent.handler(HandlerKind::kRepair);
  KINTSUGI_RETURN_IF_ERROR(agent.RegisterHandler(HandlerKind::kSave, Save, &trainer));
  KINTSUGI_RETURN_IF_ERROR(agent.RegisterHandler(HandlerKind::kRename, Rename, &trainer));
  KINTSUGI_RETURN_IF_ERROR(agent.RegisterHandler(HandlerKind::kRepair, Repair, &trainer));
  return agent.Run(Loop, &trainer);
}

}  // namespace

int main(int argc, char** argv) {
  Trainer trainer;
  trainer.steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20;
  trainer.hangs_in = argc > 2 ? argv[2] : "";
  const Status status = Run(trainer);
  if (status.ok())
    std::printf("y = %.9g x + %.9g\n", trainer.line[0], trainer.line[1]);
  else
    std::fprintf(stderr, "own_saver: %s\n", status.ToString().c_str());
  return trainer.agent ? trainer.agent->exit_code() : 1;
}
