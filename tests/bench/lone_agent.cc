#include "tests/bench/lone_agent.h"

#include <unistd.h>

#include <array>

#include "tests/bench/figures.h"

namespace kintsugi::bench {
namespace {

constexpr const char* kJob = "bench";

Status Nothing(HandlerContext&, void*) { return Status::Ok(); }
Status OpenAtOnce(Step, void*) { return Status::Ok(); }

void Register(Agent& agent, std::vector<float>& memory, GateMode gate) {
  Need(agent.SetReplicaLayout(0, {Rank(0)}, 1));
  ShardedTensor tensor;
  tensor.key = "weights";
  tensor.dtype = DType::kFloat32;
  tensor.global_shape = tensor.local_shape = {static_cast<int64_t>(memory.size())};
  tensor.global_offset = {0};
  tensor.memory.data = memory.data();
  tensor.memory.size_bytes = memory.size() * sizeof(float);
  Need(agent.RegisterTensor(tensor));
  for (const HandlerKind kind : {HandlerKind::kStop, HandlerKind::kClean, HandlerKind::kRebuildGroup,
                                 HandlerKind::kRepair, HandlerKind::kRollback, HandlerKind::kSave, HandlerKind::kRename})
    Need(agent.RegisterHandler(kind, &Nothing, nullptr));
  Need(agent.SetGate(gate, gate == GateMode::kTrainer ? &OpenAtOnce : nullptr));
}

}  // namespace

LoneAgent::LoneAgent(GateMode gate) : tensor_(1024) {
  auto secret = net::Secret::Generate();
  Need(secret.status());
  ControllerOptions controller;
  controller.job = kJob;
  controller.policy.world_size = 1;
  controller.policy.can_spawn = false;
  controller.policy.silence = std::chrono::seconds(60);  // a busy machine is no fault here
  controller_ = std::make_unique<Controller>(io_, controller, *secret, static_cast<ControllerHost&>(*this), NullLogSink());
  Need(controller_->Listen());
  controller_->Start();
  thread_ = std::thread([this] { io_.run(); });

  const auto fd = (*secret)->ToFd();
  Need(fd.status());
  AgentOptions options;
  options.rank = Rank(0);
  options.controller_port = controller_->port();
  options.job = kJob;
  options.secret_fd = *fd;
  auto agent = Agent::Join(options);
  ::close(*fd);
  Need(agent.status());
  agent_ = std::move(agent).value();
  Register(*agent_, tensor_, gate);
}

LoneAgent::~LoneAgent() {
  agent_.reset();
  io_.stop();
  thread_.join();
}

void LoneAgent::Run(std::function<void(Step first)> body) {
  Need(agent_->Run(
      [](Step first, void* context) {
        (*static_cast<std::function<void(Step)>*>(context))(first);
        return Status::Ok();
      },
      &body));
}

}  // namespace kintsugi::bench
