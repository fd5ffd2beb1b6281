// bench_plan: what a reshard plan costs, in time and memory, and how it grows.
//
// From a layout to one that cuts the first axis differently, 10 k, 100 k and 1 M shards on 1,024 ranks: tensors of
// 1,024 pieces each, and one tensor of all of them; grids of 1, 2 and 3 axes, and flat ranges. Times are CPU time of
// one thread, because a shared machine's clock counts its neighbours; wall clock stands beside them. Budgets: 1 s for 1
// M shards; a check costs less than the plan. With --model the 64 ranks of a Llama-3 405B, TP 8, PP 4, DP 2 and ZeRO-1,
// are planned to the 128 of TP 4, PP 8, DP 4, as metadata alone. With --peers torch DCP and Megatron-core plan,
// validate and distribute the same metadata in the same run.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "replica/plan/plan_check.h"
#include "replica/plan/planner.h"
#include "tests/bench/figures.h"
#include "tests/bench/heap_peak.h"
#include "tests/bench/plan_layouts.h"
#include "tests/bench/plan_peers.h"
#include "tests/bench/thread_time.h"

namespace kintsugi::bench {
namespace {

using layout::Metadata;
using plan::Plan;

struct Options {
  int runs = 3;
  uint64_t shards_max = 1000000;
  std::string model;
  bool peers = false;
  std::string python = KINTSUGI_SOURCE_DIR "/build/python/bin/python";
  std::string json;
};

struct Seconds {
  double cpu = 0, wall = 0;
};

template <typename Body>
Seconds Time(Body body) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu = ThreadTime(body);
  return {cpu, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

struct Measured {
  double shards = 0, moves = 0, plan_bytes = 0, peak_bytes = 0;
  double plan_s = 0, check_s = 0, own_s = 0, wall_s = 0;
  Json runs;
  plan::Traffic traffic;
  std::vector<int64_t> sent, received;  // per rank, without local copies
};

Plan Made(const Metadata& source, const Metadata& target, const plan::PlanOptions& options = {}) {
  auto made = MakePlan(source, target, options);
  Need(made.status());
  return std::move(made).value();
}

Measured Measure(const Metadata& source, const Metadata& target, int runs) {
  Measured measured;
  measured.shards = static_cast<double>(target.piece_count());
  std::vector<double> plan_s, check_s, own_s, wall_s;
  for (int run = 0; run < runs; ++run) {
    Plan whole;
    ResetHeapPeak();
    const Seconds spent = Time([&] { whole = Made(source, target); });
    measured.peak_bytes = static_cast<double>(HeapPeak());
    plan_s.push_back(spent.cpu);
    wall_s.push_back(spent.wall);
    std::optional<layout::LayoutError> error;
    check_s.push_back(Time([&] { error = CheckPlan(whole, source, target); }).cpu);
    if (error) Need(error->ToStatus());
    own_s.push_back(Time([&] { Made(source, target, {.rank = 1}); }).cpu);
    measured.moves = static_cast<double>(whole.moves.size());
    measured.plan_bytes = static_cast<double>(whole.MemoryBytes());
    measured.traffic = TrafficOf(whole);
    measured.sent.clear();
    measured.received.clear();
    for (const plan::Move& move : whole.moves) {
      const auto ranks = static_cast<size_t>(std::max(move.from, move.to)) + 1;
      if (measured.sent.size() < ranks) measured.sent.resize(ranks), measured.received.resize(ranks);
      if (move.from == move.to) continue;
      measured.sent[static_cast<size_t>(move.from)] += move.bytes;
      measured.received[static_cast<size_t>(move.to)] += move.bytes;
    }
  }
  measured.plan_s = Median(plan_s);
  measured.check_s = Median(check_s);
  measured.own_s = Median(own_s);
  measured.wall_s = Median(wall_s);
  measured.runs = Rounded(plan_s);
  return measured;
}

void AddTimes(Figures& figures, const std::string& id, const Measured& measured, std::optional<double> budget) {
  Figure plan = AtMost("plan/" + id, measured.plan_s, "s", budget);
  plan.more = {
      {"wall_s", measured.wall_s}, {"shards", measured.shards}, {"moves", measured.moves}, {"runs", measured.runs}};
  figures.Add(plan);
  Figure check = AtMost("check/" + id, measured.check_s, "s", {});
  check.baseline = measured.plan_s;
  check.ratio = measured.check_s / measured.plan_s;
  check.budget = 1;
  check.ok = *check.ratio <= 1;
  check.more["budget_of"] = "ratio";
  figures.Add(check);
  Figure own = AtMost("one-rank/" + id, measured.own_s, "s", {});
  own.baseline = measured.plan_s;
  figures.Add(own);
  Figure memory = AtMost("peak-memory/" + id, measured.peak_bytes / measured.moves, "B/move", {});
  memory.baseline = measured.plan_bytes / measured.moves;
  memory.more["baseline_source"] = "the plan itself";
  figures.Add(memory);
}

void AddGrowth(Figures& figures, const std::string& id, const std::vector<Measured>& sizes) {
  if (sizes.size() < 2) return;
  const Measured &small = sizes.front(), &large = sizes.back();
  figures.Add(AtMost("growth-exponent/" + id,
                     std::log(large.plan_s / small.plan_s) / std::log(large.moves / small.moves), "1", {}));
}

void MeasureLayouts(Figures& figures, const Options& options) {
  for (const auto& [name, cut] :
       {std::pair{"1-d", Cut::kLine}, {"2-d", Cut::kPlane}, {"3-d", Cut::kSpace}, {"flat", Cut::kFlat}})
    for (const bool is_one : {false, true}) {
      std::vector<Measured> sizes;
      const std::string kind = std::string(name) + (is_one ? "/one-tensor" : "/tensors");
      for (uint64_t shards = 10000; shards <= options.shards_max; shards *= 10) {
        const auto make = is_one ? OneTensor : Tensors;
        sizes.push_back(Measure(make(cut, shards, true), make(cut, shards, false), options.runs));
        AddTimes(figures, kind + "/" + std::to_string(shards / 1000) + "k", sizes.back(),
                 shards == 1000000 ? std::optional(1.0) : std::nullopt);
      }
      AddGrowth(figures, kind, sizes);
    }
}

void AddBytes(Figures& figures, const std::string& id, const std::vector<int64_t>& bytes) {
  int64_t largest = 0, sum = 0, ranks = 0;
  for (int64_t of_rank : bytes) largest = std::max(largest, of_rank), sum += of_rank, ranks += of_rank > 0;
  Figure figure = AtMost(id + "/largest", static_cast<double>(largest) / 1e9, "GB", {});
  figure.baseline = static_cast<double>(sum) / 1e9 / static_cast<double>(std::max<int64_t>(1, ranks));
  figure.more = {{"baseline_source", "the mean over ranks that have any"}, {"ranks", ranks}, {"bytes", bytes}};
  figures.Add(figure);
}

void MeasureModel(Figures& figures, const Options& options) {
  const Metadata source = Llama3_405B({8, 4, 2}), target = Llama3_405B({4, 8, 4});
  const Measured measured = Measure(source, target, options.runs);
  AddTimes(figures, options.model, measured, {});
  figures.Add(
      AtMost("bytes-total/" + options.model, static_cast<double>(measured.traffic.bytes_total) / 1e9, "GB", {}));
  figures.Add(
      AtMost("bytes-local/" + options.model, static_cast<double>(measured.traffic.bytes_local) / 1e9, "GB", {}));
  AddBytes(figures, "sent/" + options.model, measured.sent);
  AddBytes(figures, "received/" + options.model, measured.received);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"What a reshard plan costs"};
  app.add_option("--runs", options.runs, "Repetitions")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--shards-max", options.shards_max, "The largest layout")->capture_default_str();
  app.add_option("--model", options.model, "A model instead: llama3-405b")->check(CLI::IsMember({"llama3-405b"}));
  app.add_flag("--peers", options.peers, "torch DCP and Megatron-core on the same metadata instead");
  app.add_option("--python", options.python, "An interpreter that has them")->capture_default_str();
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  Figures figures("plan");
  if (options.peers)
    MeasurePeers(figures, options.python, options.runs);
  else if (options.model.empty())
    MeasureLayouts(figures, options);
  else
    MeasureModel(figures, options);
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
