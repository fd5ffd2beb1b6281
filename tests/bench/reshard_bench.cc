// bench_reshard: state that changes its layout between real processes of one host.
//
// 1 GiB of float32, from tensor parallel 4 to tensor parallel 2 x data parallel 2, and from ZeRO-1 of 8 ranks to ZeRO-1
// of 6; over shared memory and over TCP on loopback. A rate is all bytes that arrive, over the time from the first
// rank's start to the last one's end. Baselines, in the same run and between the same processes: one memcpy of one
// thread, and one link's bare stream. Bytes moved must equal what the targets ask for, to the byte.
#include "tests/bench/figures.h"
#include "tests/bench/reshard_bench_world.h"

namespace kintsugi::bench {
namespace {

struct Options {
  int64_t mib = 1024;
  int runs = 5;
  std::string json;
};

template <typename Value>
std::vector<double> Each(const ReshardMeasured& measured, const Value& value) {
  std::vector<double> values;
  for (const ReshardRun& run : measured.runs) values.push_back(value(run));
  return values;
}

void Add(Figures& figures, const ReshardLayout& layout, const std::string& kind, const ReshardMeasured& measured) {
  const std::string id = layout.name + "/" + kind;
  const double wanted = static_cast<double>(layout.wanted_bytes);
  const auto rate = [&](const ReshardRun& run) { return wanted / run.move_s / 1e9; };
  const auto copies = [](const ReshardRun& run) { return run.memcpy_rate; };
  const auto streams = [](const ReshardRun& run) { return run.link_rate; };
  const auto add_rate = [&](const char* baseline, const auto& base) {
    Figure figure{id + "/of-" + baseline, Median(Each(measured, rate)), "GB/s", Median(Each(measured, base))};
    figure.ratio = Median(Each(measured, [&](const ReshardRun& run) { return rate(run) / base(run); }));
    figure.more = {{"baseline_id", baseline}, {"runs", Rounded(Each(measured, rate))}};
    figures.Add(figure);
  };
  add_rate("memcpy", copies);
  add_rate("bare-link", streams);
  for (const auto& [phase, value] : {std::pair<const char*, double ReshardRun::*>{"plan", &ReshardRun::plan_s},
                                     {"check", &ReshardRun::check_s},
                                     {"execute", &ReshardRun::move_s}})
    figures.Add(AtMost(id + "/phase/" + phase, Median(Each(measured, [v = value](const ReshardRun& run) { return run.*v; })) * 1e3, "ms", {}));
  Figure bytes{id + "/bytes-moved", static_cast<double>(measured.bytes_sent + measured.bytes_local), "B", wanted};
  bytes.budget = 1;
  bytes.ok = measured.bytes_sent + measured.bytes_local == layout.wanted_bytes && measured.bytes_sent == measured.bytes_received;
  bytes.more = {{"budget_of", "ratio, exactly"}, {"baseline_source", "what the targets ask for"},
                {"sent", measured.bytes_sent},   {"received", measured.bytes_received},
                {"local", measured.bytes_local}, {"without_a_buffer_on_a_side", measured.bytes_unstaged},
                {"messages", measured.messages}};
  figures.Add(bytes);
  figures.Add(AtMost(id + "/peak-memory/staging", static_cast<double>(measured.staging_bytes_peak) / (1 << 20), "MiB", {}));
  figures.Add(AtMost(id + "/peak-memory/resident", static_cast<double>(measured.resident_bytes_peak) / (1 << 20), "MiB", {}));
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"State that changes its layout between processes of this host, against one memcpy and the bare link"};
  app.add_option("--mib", options.mib, "MiB of state")->check(CLI::Range(16, 1 << 14))->capture_default_str();
  app.add_option("--runs", options.runs, "Measured runs")->check(CLI::Range(1, 64))->capture_default_str();
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  Figures figures("reshard");
  for (const ReshardLayout& layout : {TensorParallel(options.mib << 20), ZeroOne(options.mib << 20)})
    for (const auto& [kind, prefer] : {std::pair{"shared-memory", LinkPreference::kSharedMemory}, {"tcp", LinkPreference::kTcp}})
      Add(figures, layout, kind, MeasureReshard(layout, prefer, options.runs));
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
