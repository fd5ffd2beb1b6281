#include "tests/bench/overhead_rank.h"

#include <unistd.h>

#include <fstream>

#include "integrations/examples/byte_lm/gloo_process_groups.h"
#include "integrations/examples/byte_lm/worker.h"
#include "replica/defaults.h"
#include "tests/support/directory_store.h"

namespace kintsugi::bench {
namespace {

using namespace byte_lm;  // NOLINT

constexpr const char* kAgentThread = "kintsugi-agent";
constexpr const char* kSnapshotThread = "kintsugi-snap";
constexpr int kReplicas = 2;

template <typename T>
T Must(Result<T> result) {
  Need(result.status());
  return std::move(result).value();
}

// CPU time of the threads of a process, all of them or those of one name. The scheduler's count: nanoseconds, where
// /proc/.../stat has ticks.
double CpuNanoseconds(pid_t process, const std::string& name = "") {
  double sum = 0;
  const std::filesystem::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, comm);
    double nanoseconds = 0;
    if ((name.empty() || comm == name) && std::ifstream(task.path() / "schedstat") >> nanoseconds) sum += nanoseconds;
  }
  return sum;
}

TrainConfig Training(const RankOptions& options) {
  TrainConfig train;
  train.batch = options.batch;
  train.steps = options.warmup + options.steps + 1;
  return train;
}

// Notes time and CPU time at the two ends of the measured steps.
class Meter {
 public:
  explicit Meter(const RankOptions& options) : options_(options) {}

  void AtStep(Step step) {
    const auto number = static_cast<int64_t>(step.value());
    if (number == options_.warmup + 1) begin_ = Now();
    if (number == options_.warmup + options_.steps + 1) end_ = Now();
  }

  RankFigures Figures() const {
    const double wall_ns = static_cast<double>((end_.wall - begin_.wall).count());
    RankFigures figures;
    figures.step_ms = wall_ns / 1e6 / static_cast<double>(options_.steps);
    figures.agent_cpu_share = (end_.agent_ns - begin_.agent_ns) / wall_ns;
    figures.launcher_cpu_share = (end_.launcher_ns - begin_.launcher_ns) / wall_ns;
    figures.snapshot_cpu_share = (end_.snapshot_ns - begin_.snapshot_ns) / wall_ns;
    return figures;
  }

 private:
  struct Instant {
    TimePoint wall;
    double agent_ns = 0, launcher_ns = 0, snapshot_ns = 0;
  };
  static Instant Now() {
    return {SteadyClock::SteadyNow(), CpuNanoseconds(getpid(), kAgentThread), CpuNanoseconds(getppid()),
            CpuNanoseconds(getpid(), kSnapshotThread)};
  }

  const RankOptions options_;
  Instant begin_, end_;
};

void WriteRank(const RankOptions& options, Rank rank, const RankFigures& figures) {
  const Json json = {{"step_ms", figures.step_ms},
                     {"agent_cpu_share", figures.agent_cpu_share},
                     {"launcher_cpu_share", figures.launcher_cpu_share},
                     {"snapshot_cpu_share", figures.snapshot_cpu_share},
                     {"barrier_us", figures.barrier_us},
                     {"mirror_us", figures.mirror_us}};
  std::ofstream(options.folder / ("rank-" + rank.ToString() + ".json")) << json;
}

double MedianUs(int count, const std::function<void(int)>& body) {
  std::vector<double> us;
  for (int i = 0; i < count; ++i) {
    const TimePoint begin = SteadyClock::SteadyNow();
    body(i);
    us.push_back(static_cast<double>((SteadyClock::SteadyNow() - begin).count()) / 1e3);
  }
  return Median(us);
}

// What a step pays under Kintsugi beside the markers: the gate's barrier, and the exchange of the mirrored objects.
void Probe(const RankOptions& options, HandlerContext& call, ProcessGroups& groups, Trainer& trainer,
           RankFigures* figures) {
  StateRegistry registry;
  Need(registry.AddObject(trainer.DropoutObject()));
  for (int other = 0; other < options.world_size; ++other)
    if (other != call.rank.value()) call.partners.push_back(Rank(other));
  ReplicaDefaults mirror(registry);
  Need(mirror.Open(call));
  figures->barrier_us = MedianUs(options.probes, [&](int) { Need(groups.Barrier()); });
  figures->mirror_us = MedianUs(options.probes, [&](int i) {
    Need(mirror.Mirror(Step(static_cast<uint64_t>(i) + 1), registry.ShareMirrored()));
  });
  Need(groups.Barrier());  // nobody takes the links away from under the other
}

}  // namespace

void RunWithAgent(const RankOptions& options) {
  const TextData text = Must(TextData::Load({}));
  const auto agent = Must(kintsugi::Join(Must(AgentOptions::FromEnvironment())));
  Meter meter(options);
  WorkerOptions worker_options;
  worker_options.train = Training(options);
  worker_options.replicas = kReplicas;
  worker_options.sample_count = 0;
  worker_options.ballast_mib = options.ballast_mib;
  worker_options.on_step = [&](Step step) { meter.AtStep(step); };
  const auto worker = Must(Worker::Create(*agent, worker_options, text));
  Need(worker->Run());
  WriteRank(options, agent->rank(), meter.Figures());
}

void RunWithoutAgent(const RankOptions& options, Rank rank) {
  const TextData text = Must(TextData::Load({}));
  TrainerOptions trainer_options;
  trainer_options.train = Training(options);
  trainer_options.layout = Must(RankLayout::Of(rank.value(), options.world_size, 1, kReplicas));
  const auto trainer = Must(Trainer::Create(trainer_options, text));

  DirectoryStore store(options.folder);
  CancelToken never;
  HandlerContext call;
  call.rank = rank;
  call.world_size = options.world_size;
  call.generation = Generation(1);
  call.deadline = SteadyClock::SteadyNow() + std::chrono::seconds(60);
  call.cancel = &never;
  call.store = &store;
  GlooProcessGroups groups(trainer_options.layout);
  Need(groups.Connect(call));
  trainer->SetGroups(groups.groups());
  Need(trainer->SyncParameters());

  Meter meter(options);
  for (Step step(1); static_cast<int64_t>(step.value()) <= trainer_options.train.steps; step = step.Next()) {
    meter.AtStep(step);
    Need(trainer->Forward(step));
    Need(trainer->Backward());
    Need(trainer->SyncGradients());
    Need(trainer->SyncNorm());
    for (size_t i = 0; i < (trainer->skips_update() ? 0 : trainer->piece_count()); ++i) trainer->UpdatePiece(i);
    Need(trainer->SyncParameters());
  }
  RankFigures figures = meter.Figures();
  if (options.probes > 0) Probe(options, call, groups, *trainer, &figures);
  WriteRank(options, rank, figures);
}

RankFigures ReadRank(const std::filesystem::path& folder, int rank) {
  const auto file = folder / ("rank-" + std::to_string(rank) + ".json");
  const Json json = Json::parse(std::ifstream(file), nullptr, false);
  if (json.is_discarded()) Need({StatusCode::kNotFound, "rank " + std::to_string(rank) + " left no figures in " + file.string()});
  return {json["step_ms"],    json["agent_cpu_share"], json["launcher_cpu_share"], json["snapshot_cpu_share"],
          json["barrier_us"], json["mirror_us"]};
}

}  // namespace kintsugi::bench
