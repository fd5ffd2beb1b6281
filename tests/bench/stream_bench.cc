// bench_stream: the state stream between two processes of one host against what the host can do at best.
//
// State of 64 tensors goes from one process into the memory of another, into pages that are warm (touched before) and fresh
// (mapped just now, as in a respawned process), over each link, with and without checksums. Baselines, in the same run and
// interleaved with the rest: one memcpy of one thread, a raw socket loop, a bare Gloo loop. Values are medians.
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/bench/stream_bench_peer.h"
#include "tests/support/directory_store.h"

namespace kintsugi::bench {
namespace {

using Json = nlohmann::json;

struct Options {
  uint64_t mib = 1024;
  int runs = 5;
  bool fresh = true;
  std::string json;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Anonymous memory that this process holds now.
uint64_t AnonymousKib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t kib = 0;
  while (status >> word)
    if (word == "RssAnon:") status >> kib;
  return kib;
}

class Bench {
 public:
  Bench(const Options& options, const std::filesystem::path& directory)
      : options_(options),
        size_bytes_((options.mib << 20) / kTensors * kTensors),
        directory_(directory),
        peer_(directory, size_bytes_),
        source_(size_bytes_),
        warm_(size_bytes_) {
    std::memset(source_.data(), 1, size_bytes_);
    std::memset(warm_.data(), 2, size_bytes_);
  }

  Json Run() {
    for (int run = -1; run < options_.runs; ++run) {  // the first round warms caches and is not counted
      Round(false, run >= 0);
      if (options_.fresh) Round(true, run >= 0);
    }
    PeakMemory();
    return Figures();
  }

 private:
  static std::string Suffix(bool fresh) { return fresh ? "/fresh" : "/warm"; }

  // `transfer` gives seconds.
  void Measure(const std::string& id, bool fresh, bool count, const std::function<double(const Memory&)>& transfer) {
    double seconds = 0;
    if (fresh) {
      const Pages pages(size_bytes_);
      seconds = transfer(pages.memory());
    } else {
      seconds = transfer(warm_.memory());
    }
    if (count) rates_[id + Suffix(fresh)].push_back(static_cast<double>(size_bytes_) / seconds / 1e9);
  }

  void Round(bool fresh, bool count) {
    Measure("memcpy", fresh, count, [&](const Memory& target) {
      const TimePoint start = SteadyClock::SteadyNow();
      std::memcpy(target.data, source_.data(), size_bytes_);
      return std::chrono::duration<double>(SteadyClock::SteadyNow() - start).count();
    });
    Measure("raw-socket", fresh, count, [&](const Memory& target) { return ReceiveRaw(peer_, Next(), target); });
    Measure("bare-gloo", fresh, count,
            [&](const Memory& target) { return ReceiveBareGloo(directory_, peer_, Next(), target); });
    for (const auto& [name, order] : Streams())
      Measure(name, fresh, count, [&, stream = order](const Memory& target) mutable {
        stream.number = ++number_;
        return ReceiveStream(directory_, peer_, stream, target);
      });
  }

  static std::vector<std::pair<std::string, Order>> Streams() {
    std::vector<std::pair<std::string, Order>> streams;
    for (auto checksum : {ChecksumAlgorithm::kNone, ChecksumAlgorithm::kCrc32c}) {
      const std::string suffix = checksum == ChecksumAlgorithm::kNone ? "/no-checksum" : "/crc32c";
      Order order{.prefer = LinkPreference::kSharedMemory, .checksum = checksum, .shared = true};
      streams.emplace_back("shared-memory/agent" + suffix, order);
      order.shared = false;
      streams.emplace_back("shared-memory/heap" + suffix, order);
      order.prefer = LinkPreference::kGloo;
      streams.emplace_back("gloo" + suffix, order);
    }
    return streams;
  }

  Order Next() {
    Order order;
    order.number = ++number_;
    return order;
  }

  // Anonymous memory beyond what was there before, while a state streams in: the window and the bookkeeping.
  void PeakMemory() {
    for (auto [name, order] : Streams()) {
      order.number = ++number_;
      const uint64_t before = AnonymousKib();
      std::atomic<bool> over{false};
      uint64_t peak = before;
      std::thread sampler([&] {
        while (!over) {
          peak = std::max(peak, AnonymousKib());
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
      ReceiveStream(directory_, peer_, order, warm_.memory());
      over = true;
      sampler.join();
      peak_mib_[name] = static_cast<double>(peak - before) / 1024;
    }
  }

  Json Figure(const std::string& id, double value, const char* unit, const Json& baseline, const Json& ratio,
              const Json& budget, bool ok) const {
    return {{"id", id},       {"value", value},   {"unit", unit}, {"baseline", baseline},
            {"ratio", ratio}, {"budget", budget}, {"ok", ok}};
  }

  Json Rate(const std::string& id, const std::string& baseline, double budget) const {
    const double value = Median(rates_.at(id)), base = Median(rates_.at(baseline));
    Json figure = Figure(id, value, "GB/s", base, value / base, budget > 0 ? Json(budget) : Json(nullptr),
                         budget <= 0 || value / base >= budget);
    figure["baseline_id"] = baseline;
    return figure;
  }

  // Share of the rate that the checksum takes; the budget is an upper bound.
  Json ChecksumCost(const std::string& link, const std::string& pages, double budget) const {
    const double without = Median(rates_.at(link + "/no-checksum" + pages));
    const double with = Median(rates_.at(link + "/crc32c" + pages));
    const double cost = 1 - with / without;
    return Figure(link + pages + "/checksum-cost", cost * 100, "%", without, cost, budget, cost <= budget);
  }

  Json Figures() const {
    Json figures = Json::array();
    for (const std::string pages : {"/warm", "/fresh"}) {
      if (pages == "/fresh" && !options_.fresh) continue;
      for (const char* base : {"memcpy", "raw-socket", "bare-gloo"}) figures.push_back(Rate(base + pages, "memcpy" + pages, 0));
      figures.push_back(Rate("shared-memory/agent/no-checksum" + pages, "memcpy" + pages, 0.70));
      figures.push_back(Rate("shared-memory/heap/no-checksum" + pages, "memcpy" + pages, 0.45));
      figures.push_back(Rate("gloo/no-checksum" + pages, "bare-gloo" + pages, 0.95));
      Json aim = Rate("gloo/no-checksum" + pages, "raw-socket" + pages, 0);
      aim["id"] = "gloo/no-checksum" + pages + "/of-raw-socket";
      aim["aim"] = 0.90;
      figures.push_back(aim);
      figures.push_back(Rate("shared-memory/agent/crc32c" + pages, "memcpy" + pages, 0));
      figures.push_back(Rate("shared-memory/heap/crc32c" + pages, "memcpy" + pages, 0));
      figures.push_back(Rate("gloo/crc32c" + pages, "bare-gloo" + pages, 0));
      figures.push_back(ChecksumCost("shared-memory/agent", pages, 0.25));
      figures.push_back(ChecksumCost("shared-memory/heap", pages, 0.25));
      figures.push_back(ChecksumCost("gloo", pages, 0.10));
    }
    for (const auto& [name, mib] : peak_mib_)
      figures.push_back(Figure(name + "/peak-memory-beyond-state", mib, "MiB", static_cast<double>(options_.mib),
                               mib / static_cast<double>(options_.mib), nullptr, true));
    return figures;
  }

  const Options options_;
  const uint64_t size_bytes_;
  const std::filesystem::path directory_;
  const Peer peer_;  // first: it forks
  const Pages source_, warm_;
  int number_ = 0;
  std::map<std::string, std::vector<double>> rates_;
  std::map<std::string, double> peak_mib_;
};

Json Host() {
  utsname name{};
  uname(&name);
  std::ifstream cpus("/proc/cpuinfo");
  std::string line, model;
  while (std::getline(cpus, line))
    if (model.empty() && line.rfind("model name", 0) == 0) model = line.substr(line.find(':') + 2);
  return {{"cores", std::thread::hardware_concurrency()}, {"cpu", model}, {"kernel", name.release}, {"machine", name.machine}};
}

void Print(const Json& result, std::ostream& out) {
  for (const Json& figure : result["figures"]) {
    char line[200];
    std::snprintf(line, sizeof(line), "%-52s %9.2f %-5s", figure["id"].get<std::string>().c_str(),
                  figure["value"].get<double>(), figure["unit"].get<std::string>().c_str());
    out << line;
    if (figure["unit"] == "GB/s") {
      std::snprintf(line, sizeof(line), "  baseline %6.2f  ratio %5.2f", figure["baseline"].get<double>(),
                    figure["ratio"].get<double>());
      out << line;
    }
    if (!figure["budget"].is_null()) out << "  budget " << figure["budget"] << (figure["ok"].get<bool>() ? ": ok" : ": MISSED");
    out << "\n";
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"The state stream between two processes of this host, against memcpy, a raw socket and a bare Gloo loop"};
  app.add_option("--mib", options.mib, "MiB of state, in 64 tensors")->check(CLI::Range(64, 1 << 16));
  app.add_option("--runs", options.runs, "Measured runs")->check(CLI::Range(1, 1000));
  app.add_flag("!--warm-only", options.fresh, "Leave out the destination with fresh pages");
  app.add_option("--json", options.json, "Write the figures as JSON to this file, - or nothing for standard output")
      ->expected(0, 1)
      ->default_str("-");
  CLI11_PARSE(app, argc, argv);
  if (app.count("--json") > 0 && options.json.empty()) options.json = "-";

  const TemporaryDirectory directory;
  const Json result = {{"name", "stream"}, {"host", Host()}, {"figures", Bench(options, directory.path()).Run()}};
  Print(result, options.json == "-" ? std::cerr : std::cout);
  if (options.json == "-") {
    std::cout << result.dump(2) << "\n";
  } else if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << result.dump(2) << "\n";
    if (!file.flush()) Need({StatusCode::kPermissionDenied, "cannot write " + options.json});
  }
  bool ok = true;
  for (const Json& figure : result["figures"]) ok &= figure["ok"].get<bool>();
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
