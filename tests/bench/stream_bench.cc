// bench_stream: the state stream between two processes of one host against what the host can do at best.
//
// State of 64 tensors goes from one process into the memory of another, into pages that are warm (touched before) and
// fresh (mapped just now, as in a respawned process), over each link, with and without checksums. Baselines, in the
// same run and interleaved with the rest: one memcpy of one thread (behind the rest, torch's copy of one thread, stream_peers.py), a raw socket loop, a bare Gloo loop. Values are
// medians. CPU is that of both processes together, the kernel's part included: it says what a way costs where cores are
// short or others use them.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "kernels/host_copy_way.h"
#include "tests/bench/figures.h"
#include "tests/bench/stream_bench_peer.h"
#include "tests/support/directory_store.h"

namespace kintsugi::bench {
namespace {

struct Options {
  uint64_t mib = 1024;
  int runs = 5;
  bool fresh = true;
  ChecksumAlgorithm checksum = SendOptions().checksum;
  std::vector<std::string> only;
  std::string python = KINTSUGI_SOURCE_DIR "/build/python/bin/python";
  std::string json;
};

std::map<std::string, ChecksumAlgorithm> ChecksumNames() {
  std::map<std::string, ChecksumAlgorithm> names;
  for (uint32_t number = 1; const auto algorithm = ChecksumFromNumber(number); ++number)
    names[std::string(ChecksumName(*algorithm))] = *algorithm;
  return names;
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

  void Run(Figures& figures) {
    for (int run = -1; run < options_.runs; ++run) {  // the first round warms caches and is not counted
      Round(false, run >= 0);
      if (options_.fresh) Round(true, run >= 0);
    }
    PeakMemory();
    AddTo(figures);
    AddTorch(figures);
  }

 private:
  bool Wanted(const std::string& id) const {
    return options_.only.empty() ||
           std::any_of(options_.only.begin(), options_.only.end(),
                       [&](const std::string& word) { return id.find(word) != std::string::npos; });
  }

  static std::string Suffix(bool fresh) { return fresh ? "/fresh" : "/warm"; }

  // `transfer` gives seconds.
  void Measure(const std::string& id, bool fresh, bool count, const std::function<double(const Memory&)>& transfer) {
    if (!Wanted(id)) return;
    double seconds = 0;
    const double cpu_before = peer_.CpuSecondsOfBoth();
    if (fresh) {
      const Pages pages(size_bytes_);
      seconds = transfer(pages.memory());
    } else {
      seconds = transfer(warm_.memory());
    }
    if (!count) return;
    const double gigabytes = static_cast<double>(size_bytes_) / 1e9;
    rates_[id + Suffix(fresh)].push_back(gigabytes / seconds);
    cpu_[id + Suffix(fresh)].push_back((peer_.CpuSecondsOfBoth() - cpu_before) / gigabytes);
  }

  void Round(bool fresh, bool count) {
    const auto copy = [&](const std::string& name, auto how) {
      Measure(name, fresh, count, [&](const Memory& target) {
        const TimePoint start = SteadyClock::SteadyNow();
        how(static_cast<uint8_t*>(target.data));
        return std::chrono::duration<double>(SteadyClock::SteadyNow() - start).count();
      });
    };
    copy("memcpy", [&](uint8_t* to) { std::memcpy(to, source_.data(), size_bytes_); });
    for (const internal::CopyWay way : CopyWays())
      copy(NameOf(way), [&](uint8_t* to) { internal::CopyBy(way, to, source_.data(), size_bytes_, nullptr); });
    Measure("raw-socket", fresh, count, [&](const Memory& target) { return ReceiveRaw(peer_, Next(), target); });
    Measure("bare-gloo", fresh, count,
            [&](const Memory& target) { return ReceiveBareGloo(directory_, peer_, Next(), target); });
    for (const auto& [name, order] : Streams())
      Measure(name, fresh, count, [&, stream = order](const Memory& target) mutable {
        stream.number = ++number_;
        return ReceiveStream(directory_, peer_, stream, target);
      });
  }

  static std::vector<internal::CopyWay> CopyWays() {
    std::vector<internal::CopyWay> ways(internal::kCopyWays.begin(), internal::kCopyWays.end());
    std::erase_if(ways, [](internal::CopyWay way) { return !internal::CanCopy(way); });
    return ways;
  }
  static std::string NameOf(internal::CopyWay way) { return "copy/" + std::string(internal::CopyWayName(way)); }

  std::string Summed() const { return "/" + std::string(ChecksumName(options_.checksum)); }

  std::vector<std::pair<std::string, Order>> Streams() const {
    std::vector<std::pair<std::string, Order>> streams;
    for (auto checksum : {ChecksumAlgorithm::kNone, options_.checksum}) {
      const std::string suffix = checksum == ChecksumAlgorithm::kNone ? "/no-checksum" : Summed();
      Order order{.prefer = LinkPreference::kSharedMemory, .checksum = checksum, .shared = true};
      streams.emplace_back("shared-memory/agent" + suffix, order);
      order.shared = false;
      streams.emplace_back("shared-memory/heap" + suffix, order);
      order.prefer = LinkPreference::kTcp;
      streams.emplace_back("tcp" + suffix, order);
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
      if (!Wanted(name)) continue;
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

  // Median of the rounds' own ratios: a round measures both, so that a machine that slows down meets both.
  static double Ratio(const std::vector<double>& values, const std::vector<double>& baseline) {
    std::vector<double> ratios;
    for (size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / baseline[i]);
    return Median(ratios);
  }

  // The budget is a lower bound of the ratio. Without a figure where one of the two was left out.
  void AddRate(Figures& figures, const std::string& id, const std::string& baseline, std::optional<double> budget,
               const std::string& suffix = "") const {
    if (!rates_.contains(id) || !rates_.contains(baseline)) return;
    Figure figure{id + suffix,
                  Median(rates_.at(id)),
                  "GB/s",
                  Median(rates_.at(baseline)),
                  Ratio(rates_.at(id), rates_.at(baseline)),
                  budget};
    figure.ok = !budget || *figure.ratio >= *budget;
    figure.more = {{"baseline_id", baseline}, {"runs", Rounded(rates_.at(id))}, {"cpu_s_per_gb", Median(cpu_.at(id))}};
    if (!suffix.empty()) figure.more["aim"] = 0.90;
    figures.Add(figure);
  }

  // Share of the rate that the checksum takes, in wall clock, where a budget is an upper bound; and what it adds to
  // the CPU time of both processes.
  void AddChecksumCost(Figures& figures, const std::string& link, const std::string& pages,
                       std::optional<double> budget_percent) const {
    const std::string with = link + Summed() + pages, without = link + "/no-checksum" + pages;
    if (!rates_.contains(with) || !rates_.contains(without)) return;
    figures.Add(AtMost(link + pages + "/checksum-cost", (1 - Ratio(rates_.at(with), rates_.at(without))) * 100, "%",
                       budget_percent));
    Figure cpu = AtMost(link + pages + "/checksum-cost/cpu", Median(cpu_.at(with)), "s/GB", {});
    cpu.baseline = Median(cpu_.at(without));
    cpu.ratio = Ratio(cpu_.at(with), cpu_.at(without));
    cpu.more = {{"runs", Rounded(cpu_.at(with))}, {"baseline_runs", Rounded(cpu_.at(without))}};
    figures.Add(cpu);
  }

  void AddTo(Figures& figures) const {
    for (const std::string pages : {"/warm", "/fresh"}) {
      if (pages == "/fresh" && !options_.fresh) continue;
      for (const char* base : {"memcpy", "raw-socket", "bare-gloo"})
        AddRate(figures, base + pages, "memcpy" + pages, {});
      for (const internal::CopyWay way : CopyWays()) AddRate(figures, NameOf(way) + pages, "memcpy" + pages, {});
      AddRate(figures, "shared-memory/agent/no-checksum" + pages, "memcpy" + pages, 0.90);
      AddRate(figures, "shared-memory/heap/no-checksum" + pages, "memcpy" + pages, 0.90);
      AddRate(figures, "tcp/no-checksum" + pages, "bare-gloo" + pages, 0.95);
      AddRate(figures, "tcp/no-checksum" + pages, "raw-socket" + pages, {}, "/of-raw-socket");
      AddRate(figures, "shared-memory/agent" + Summed() + pages, "memcpy" + pages, 0.75);
      AddRate(figures, "shared-memory/heap" + Summed() + pages, "memcpy" + pages, 0.75);
      AddRate(figures, "tcp" + Summed() + pages, "bare-gloo" + pages, {});
      AddChecksumCost(figures, "shared-memory/agent", pages, {});
      AddChecksumCost(figures, "shared-memory/heap", pages, {});
      AddChecksumCost(figures, "tcp", pages, 10);
    }
    for (const auto& [name, mib] : peak_mib_) {
      Figure peak = AtMost(name + "/peak-memory-beyond-state", mib, "MiB", {});
      peak.baseline = static_cast<double>(options_.mib);
      figures.Add(peak);
    }
  }

  // torch's own copy, of one thread, just behind the rest; nothing where there is none.
  void AddTorch(Figures& figures) const {
    const Json torch = AskPeer(options_.python, KINTSUGI_SOURCE_DIR "/tests/bench/stream_peers.py", options_.mib, options_.runs);
    if (torch.is_null()) return;
    for (const std::string pages : {"/warm", "/fresh"}) {
      if (pages == "/fresh" && !options_.fresh) continue;
      const auto rates = torch["rates"]["torch" + pages].get<std::vector<double>>();
      Figure figure{"torch" + pages, Median(rates), "GB/s"};
      if (rates_.contains("memcpy" + pages)) figure.baseline = Median(rates_.at("memcpy" + pages));
      figure.more = {{"baseline_id", "memcpy" + pages}, {"runs", Rounded(rates)}, {"version", torch["version"]}};
      figures.Add(figure);
    }
  }

  const Options options_;
  const uint64_t size_bytes_;
  const std::filesystem::path directory_;
  const Peer peer_;  // first: it forks
  const Pages source_, warm_;
  int number_ = 0;
  std::map<std::string, std::vector<double>> rates_;  // GB a second
  std::map<std::string, std::vector<double>> cpu_;    // seconds a GB
  std::map<std::string, double> peak_mib_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "The state stream between two processes of this host, against memcpy, a raw socket and a bare Gloo loop"};
  app.add_option("--mib", options.mib, "MiB of state, in 64 tensors")->check(CLI::Range(64, 1 << 16));
  app.add_option("--runs", options.runs, "Measured runs")->check(CLI::Range(1, 1000));
  app.add_flag("!--warm-only", options.fresh, "Leave out the destination with fresh pages");
  app.add_option("--checksum", options.checksum, "Of the blocks")
      ->transform(CLI::CheckedTransformer(ChecksumNames(), CLI::ignore_case));
  app.add_option("--python", options.python, "An interpreter that has torch, to be shown beside")->capture_default_str();
  app.add_option("--only", options.only, "Only ways whose name contains this word; repeatable");
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);

  Figures figures("stream");
  const TemporaryDirectory directory;
  Bench(options, directory.path()).Run(figures);
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
