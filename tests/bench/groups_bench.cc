// bench_groups: what connecting and ending the groups of one generation costs, by the number of ranks.
//
// An incident ends every rank's groups (CLEAN) and connects new ones (REBUILD), with all ranks on the cores of this host at
// once. Each round forks that many processes, which connect a group over all of them, sum once, meet, and end it; first
// through GlooGroup, then through Gloo's own rendezvous over all pairs. A wait is a voluntary switch: a thread of the rank
// that went to sleep. Wall clock is the slowest rank's; CPU time is the mean of a rank.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <thread>

#include "replica/stream/gloo_group.h"
#include "tests/bench/figures.h"
#include "tests/support/child_process.h"
#include "tests/support/shared_store.h"

namespace kintsugi::bench {
namespace {

constexpr int kRanksMax = 64;

struct Options {
  std::vector<int> ranks = {4, 8, 16, 32};
  int runs = 5;
  std::string json;
};

struct Times {
  double connect_ms = 0, end_ms = 0, cpu_ms = 0, waits = 0;
};

// Shared with the ranks of one round.
struct Round {
  std::atomic<int> ready{0}, summed{0}, failed{0};
  Times times[kRanksMax];
};

void Meet(std::atomic<int>& place, int size) {
  ++place;
  while (place < size) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

struct Used {
  Used() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    cpu_ms = 1e3 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
             1e-3 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    waits = static_cast<double>(usage.ru_nvcsw);
  }
  double cpu_ms, waits;
};

// Gloo's rendezvous over the same store.
class PlainStore final : public gloo::rendezvous::Store {
 public:
  explicit PlainStore(SharedStore& store) : store_(store) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    Need(store_.Set(key, std::vector<uint8_t>(data.begin(), data.end())));
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = store_.Get(key, SteadyClock::SteadyNow() + std::chrono::seconds(60));
    Need(value.status());
    return {(*value).begin(), (*value).end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  SharedStore& store_;
};

// A group that is connected while it lives.
class Connected {
 public:
  virtual ~Connected() = default;
  virtual void Sum(float* value) = 0;
};

class Ours final : public Connected {
 public:
  Ours(SharedStore& store, int rank, int size) {
    auto group = GlooGroup::Connect(
        store,
        {.prefix = "g", .rank = rank, .size = size, .deadline = SteadyClock::SteadyNow() + std::chrono::seconds(60)});
    Need(group.status());
    group_ = std::move(*group);
  }
  void Sum(float* value) override { Need(group_->AllReduceSum(value, 1)); }

 private:
  std::unique_ptr<GlooGroup> group_;
};

class Plain final : public Connected {
 public:
  Plain(SharedStore& store, int rank, int size) : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    PlainStore plain(store);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice({"127.0.0.1"});
    context_->connectFullMesh(plain, device);
  }
  void Sum(float* value) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(value, 1);
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

template <typename Group>
void RunRank(Round& round, SharedStore& store, int rank, int size) {
  Meet(round.ready, size);
  const Used used_before;
  const TimePoint start = SteadyClock::SteadyNow();
  auto group = std::make_unique<Group>(store, rank, size);
  Times& times = round.times[rank];
  times.connect_ms = ToMilliseconds(SteadyClock::SteadyNow() - start);
  const Used connected;
  float value = 1;
  group->Sum(&value);
  if (value != static_cast<float>(size)) ++round.failed;
  Meet(round.summed, size);
  const Used used_between;
  const TimePoint ending = SteadyClock::SteadyNow();
  group.reset();
  times.end_ms = ToMilliseconds(SteadyClock::SteadyNow() - ending);
  const Used used_after;
  times.cpu_ms = (connected.cpu_ms - used_before.cpu_ms) + (used_after.cpu_ms - used_between.cpu_ms);
  times.waits = (connected.waits - used_before.waits) + (used_after.waits - used_between.waits);
}

template <typename Group>
Times RunRound(int size) {
  SharedStore store;
  void* const memory = mmap(nullptr, sizeof(Round), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Need({StatusCode::kResourceExhausted, "no memory to share with the ranks"});
  Round& round = *new (memory) Round;
  {
    std::vector<std::unique_ptr<ChildProcess>> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.push_back(std::make_unique<ChildProcess>([&, rank] {
        RunRank<Group>(round, store, rank, size);
        return 0;
      }));
    for (auto& rank : ranks)
      if (rank->Wait() != 0) Need({StatusCode::kInternal, "a rank did not come through"});
  }
  if (round.failed > 0) Need({StatusCode::kInternal, "the ranks were not connected: a sum over them is wrong"});
  Times all;
  for (int rank = 0; rank < size; ++rank) {
    all.connect_ms = std::max(all.connect_ms, round.times[rank].connect_ms);
    all.end_ms = std::max(all.end_ms, round.times[rank].end_ms);
    all.cpu_ms += round.times[rank].cpu_ms / size;
    all.waits += round.times[rank].waits / size;
  }
  munmap(memory, sizeof(Round));
  return all;
}

void AddFigures(Figures& figures, int size, const std::vector<Times>& ours, const std::vector<Times>& plain) {
  const auto add = [&](const std::string& name, const char* unit, double Times::*field) {
    std::vector<double> mine, theirs;
    for (const Times& times : ours) mine.push_back(times.*field);
    for (const Times& times : plain) theirs.push_back(times.*field);
    Figure figure = AtMost(std::to_string(size) + "-ranks/" + name, Median(mine), unit, std::nullopt);
    figure.baseline = Median(theirs);
    figure.more["baseline_source"] = "Gloo's own rendezvous, every pair, in the same run";
    figure.more["runs"] = Rounded(mine);
    figures.Add(figure);
  };
  add("connect", "ms", &Times::connect_ms);
  add("end", "ms", &Times::end_ms);
  add("cpu-per-rank", "ms", &Times::cpu_ms);
  add("waits-per-rank", "", &Times::waits);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"What connecting and ending a generation's groups costs, by the number of ranks"};
  app.add_option("--ranks", options.ranks, "Numbers of ranks")->delimiter(',')->check(CLI::Range(2, kRanksMax));
  app.add_option("--runs", options.runs, "Rounds of each")->check(CLI::Range(1, 1000))->capture_default_str();
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  options.json = JsonTarget(app, options.json);

  Figures figures("groups");
  for (const int size : options.ranks) {
    std::vector<Times> ours, plain;
    for (int run = 0; run < options.runs; ++run) {
      ours.push_back(RunRound<Ours>(size));
      plain.push_back(RunRound<Plain>(size));
    }
    AddFigures(figures, size, ours, plain);
  }
  return figures.Finish(options.json);
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
