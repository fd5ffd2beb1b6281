// bench_control_scale: what the controller's decisions cost as the world grows.
//
// One ControllerCore, ranks that answer at once, one rank killed: every event of the incident is timed by itself.
//
//   decision/N   the longest single event of the incident: a phase that ends with the last answer and begins the next
//                one for all (budget 50 ms at 100,000 ranks)
//   incident/N   all events of the incident together; how this grows from 10,000 to 100,000 ranks (1: linearly)
//   tick/N       one tick while nothing is wrong, all ranks beating
//   memory/N     heap in use after the incident, for each rank; and the peak within it, messages on their way included
//   rank, tensor, agent/tensor   heap that the controller holds for a rank without tensors, and for each that it registers; what
//                the rank's own registry holds for one
//
// Milliseconds are CPU time of one thread. Messages are plain data here: encoding and sockets are another benchmark's.
#include <time.h>

#include <cmath>
#include <deque>
#include <map>

#include "callbacks/state/registry.h"
#include "runtime/base/clock.h"
#include "runtime/core/controller_core.h"
#include "tests/bench/figures.h"
#include "tests/bench/heap_peak.h"

namespace kintsugi::bench {
namespace {

using namespace std::chrono_literals;
using namespace core;

constexpr double kDecisionBudgetMs = 50;
constexpr int kBudgetRanks = 100'000;
constexpr int kGroupRanks = 16;
constexpr int kReplicas = 2;
constexpr int kTensors = 8;
constexpr int kManyTensors = 512;  // to tell what each costs
constexpr int kMemoryRanks = 1000;
constexpr uint64_t kStep = 7;  // committed by all before the kill

// CPU time of this thread: what others do on the machine is no cost of a decision.
double CpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// A row of a matrix, by a name as models have.
ShardedTensor Tensor(int number) {
  ShardedTensor tensor;
  tensor.key = "model.layers." + std::to_string(number) + ".mlp.down_proj.weight";
  tensor.global_shape = {8192, 8192};
  tensor.local_shape = {1, 8192};
  tensor.global_offset = {0, 0};
  return tensor;
}

// A world of ranks that do at once what they are told.
class World {
 public:
  explicit World(int ranks, int tensors = kTensors)
      : ranks_(ranks), tensors_(tensors), core_(PolicyFor(ranks), Term{1, 1}) {}

  void Begin() { Absorb(core_.Start(now_)); }
  void Beats() {
    ++beat_;
    for (int r = 0; r < ranks_; ++r) Feed(FromAgent{HeaderOf(r), Beat{beat_, {kStep + 1, TrainPhase::kForward, {}}}});
  }
  void Kill(int rank) {
    Feed(ProcessExited{Rank(rank), core_.members()[static_cast<size_t>(rank)].incarnation, "killed", {}});
  }
  double TickMs() {
    const double begin = CpuMs();
    Absorb(core_.Step(Tick{}, now_));
    return CpuMs() - begin;
  }
  void Forget() { longest_ms_ = total_ms_ = 0; }

  bool running() const { return core_.phase() == Phase::kRunning && !core_.incident(); }
  double longest_ms() const { return longest_ms_; }
  double total_ms() const { return total_ms_; }

 private:
  static Policy PolicyFor(int ranks) {
    Policy policy;
    policy.world_size = ranks;
    return policy;
  }

  Header HeaderOf(int rank) const {
    return {core_.term(), core_.generation(), Rank(rank), core_.members()[static_cast<size_t>(rank)].incarnation};
  }

  void Feed(const ControllerEvent& event) {
    const double begin = CpuMs();
    std::vector<ControllerAction> actions = core_.Step(event, now_);
    const double took = CpuMs() - begin;
    longest_ms_ = std::max(longest_ms_, took);
    total_ms_ += took;
    Absorb(std::move(actions));
  }

  // Answers are fed one after the other, as they come from the network; only what the core does is timed.
  void Absorb(std::vector<ControllerAction> actions) {
    for (ControllerAction& action : actions) inbox_.push_back(std::move(action));
    if (pumping_) return;
    pumping_ = true;
    while (!inbox_.empty()) {
      const ControllerAction action = std::move(inbox_.front());
      inbox_.pop_front();
      if (const auto* send = std::get_if<Send>(&action)) Answer(*send);
      if (const auto* spawn = std::get_if<SpawnProcess>(&action)) Join(spawn->rank.value());
    }
    pumping_ = false;
  }

  void Join(int rank) {
    Feed(FromAgent{HeaderOf(rank), JoinRequest{.pid = 1, .host = "h", .watched_by_launcher = true}});
    Ready ready;
    const int first = rank / kGroupRanks * kGroupRanks;
    GroupClaim claim{{}, kReplicas};
    for (int r = first; r < std::min(first + kGroupRanks, ranks_); ++r) claim.ranks.push_back(Rank(r));
    ready.layouts[0] = std::move(claim);
    for (int t = 0; t < tensors_; ++t) {
      const ShardedTensor tensor = Tensor(t);
      ready.registry.tensors.push_back({tensor.key, tensor.dtype, tensor.global_shape, tensor.local_shape,
                                        tensor.global_offset, std::nullopt, tensor.layout});
    }
    Feed(FromAgent{HeaderOf(rank), std::move(ready)});
  }

  void Say(int rank, AgentMessage message) { Feed(FromAgent{HeaderOf(rank), std::move(message)}); }

  void Answer(const Send& send) {
    if (send.header.generation != core_.generation()) return;
    const int rank = send.header.rank.value();
    const Step step(core_.incidents() > 0 ? kStep : 0);
    if (std::holds_alternative<LockOrder>(send.message)) Say(rank, LockReply{GateState::kCommitted, step, true});
    if (std::holds_alternative<StopOrder>(send.message)) Say(rank, Parked{GateState::kCommitted, step, true});
    if (std::holds_alternative<ResumeOrder>(send.message)) Say(rank, Resumed{});
    const auto* order = std::get_if<PhaseOrder>(&send.message);
    if (!order) return;
    PhaseDone done{.phase = order->phase};
    if (order->phase == Phase::kVerify) done.digests[0] = 1;
    Say(rank, std::move(done));
  }

  const int ranks_, tensors_;
  TimePoint now_ = TimePoint(1000s);
  ControllerCore core_;
  std::deque<ControllerAction> inbox_;
  bool pumping_ = false;
  uint64_t beat_ = 0;
  double longest_ms_ = 0, total_ms_ = 0;
};

struct Measured {
  std::vector<double> decision_ms, incident_ms, tick_ms;
  double bytes_each = 0, peak_bytes_each = 0;
};

Measured Measure(int ranks, int runs) {
  Measured measured;
  for (int run = 0; run < runs; ++run) {
    ResetHeapPeak();
    World world(ranks);
    world.Begin();
    world.Beats();
    world.Forget();
    world.Kill(ranks / 3);
    if (!world.running())
      Need({StatusCode::kInternal, "the incident of " + std::to_string(ranks) + " ranks did not end"});
    measured.decision_ms.push_back(world.longest_ms());
    measured.incident_ms.push_back(world.total_ms());
    world.Beats();
    measured.tick_ms.push_back(world.TickMs());
    measured.bytes_each = static_cast<double>(HeapInUse()) / ranks;
    measured.peak_bytes_each = static_cast<double>(HeapPeak()) / ranks;
  }
  return measured;
}

double ControllerBytes(int tensors) {
  ResetHeapPeak();
  World world(kMemoryRanks, tensors);
  world.Begin();
  if (!world.running()) Need({StatusCode::kInternal, "the run did not begin"});
  return static_cast<double>(HeapInUse()) / kMemoryRanks;
}

double RegistryBytes(int tensors) {
  ResetHeapPeak();
  StateRegistry registry;
  std::vector<float> memory(static_cast<size_t>(tensors) * 8192);
  const uint64_t outside = HeapInUse();
  for (int t = 0; t < tensors; ++t) {
    ShardedTensor tensor = Tensor(t);
    tensor.memory.data = memory.data() + static_cast<size_t>(t) * 8192;
    tensor.memory.size_bytes = tensor.ByteCount();
    Need(registry.AddTensor(tensor));
  }
  return static_cast<double>(HeapInUse() - outside);
}

// What is held for a rank and for each of its tensors: straight lines, from two numbers of tensors.
void AddMemory(Figures* figures) {
  const double none = ControllerBytes(0), many = ControllerBytes(kManyTensors);
  figures->Add(AtMost("rank", none, "bytes", std::nullopt));
  figures->Add(AtMost("tensor", (many - none) / kManyTensors, "bytes", std::nullopt));
  figures->Add(
      AtMost("agent/tensor", (RegistryBytes(kManyTensors) - RegistryBytes(0)) / kManyTensors, "bytes", std::nullopt));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) {
  using namespace kintsugi::bench;
  CLI::App app("What the controller's decisions cost as the world grows");
  int runs = 5;
  std::vector<int> sizes = {1000, 10'000, 100'000};
  std::string json;
  app.add_option("--runs", runs, "Repetitions")->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--ranks", sizes, "World sizes")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(32, 1'000'000));
  AddJsonOption(app, &json);
  CLI11_PARSE(app, argc, argv);
  Figures figures("control-scale");
  std::map<int, double> incident;
  for (int ranks : sizes) {
    const Measured measured = Measure(ranks, runs);
    const std::string of = "/" + std::to_string(ranks);
    const bool bounded = ranks == kBudgetRanks;
    figures.Add(AtMost("decision" + of, Median(measured.decision_ms), "ms",
                       bounded ? std::optional(kDecisionBudgetMs) : std::nullopt));
    incident[ranks] = Median(measured.incident_ms);
    figures.Add(AtMost("incident" + of, incident[ranks], "ms", std::nullopt));
    figures.Add(AtMost("tick" + of, Median(measured.tick_ms), "ms", std::nullopt));
    figures.Add(AtMost("memory" + of, measured.bytes_each, "bytes a rank", std::nullopt));
    figures.Add(AtMost("peak" + of, measured.peak_bytes_each, "bytes a rank", std::nullopt));
  }
  if (incident.size() > 1) {
    const auto& [small, small_ms] = *std::prev(incident.end(), 2);
    const auto& [large, large_ms] = *incident.rbegin();
    figures.Add(AtMost("growth/" + std::to_string(small) + "-" + std::to_string(large),
                       std::log(large_ms / small_ms) / std::log(static_cast<double>(large) / small), "exponent",
                       std::nullopt));
  }
  AddMemory(&figures);
  return figures.Finish(JsonTarget(app, json));
}
