// bench_save: the save path against a plain large sequential write with fsync, on the same disk, in the same run, in
// turns.
//
//   save     WritePart and Publish of 1 GiB in 64 tensors   against   write(4 MiB) ... fsync of the same bytes   budget
//   90 % load     Load, checksums verified                       against   read(4 MiB) into the same memory
//
// Medians over the rounds, the ratio of the rounds' own ratios; a round measures both, in an order that alternates, so
// that a disk that slows down meets both.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "callbacks/state/registry.h"
#include "replica/save/load.h"
#include "replica/save/publish.h"
#include "replica/save/write.h"
#include "runtime/base/random.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {
namespace {

using namespace kintsugi::checkpoint;  // NOLINT

constexpr uint64_t kChunkBytes = 4 << 20;

struct Options {
  uint64_t mib = 1024;
  int tensors = 64;
  int rounds = 7;
  std::string folder;
  std::string json;
};

class State {
 public:
  explicit State(const Options& options) : bytes_((options.mib << 20) / 8) {
    Random random(1);
    for (uint64_t& word : bytes_) word = random.Next();
    const uint64_t each = size_bytes() / static_cast<uint64_t>(options.tensors);
    for (int i = 0; i < options.tensors; ++i) {
      ShardedTensor tensor;
      tensor.key = "tensor." + std::to_string(i);
      tensor.dtype = DType::kUInt8;
      tensor.global_shape = tensor.local_shape = {static_cast<int64_t>(each)};
      tensor.global_offset = {0};
      tensor.memory.data = data() + static_cast<uint64_t>(i) * each;
      tensor.memory.size_bytes = each;
      Need(registry_.AddTensor(tensor));
    }
  }
  uint8_t* data() { return reinterpret_cast<uint8_t*>(bytes_.data()); }
  uint64_t size_bytes() const { return bytes_.size() * 8; }
  const StateRegistry& registry() const { return registry_; }

 private:
  std::vector<uint64_t> bytes_;
  StateRegistry registry_;
};

template <typename Work>
double GigabytesPerSecond(uint64_t bytes, Work work) {
  const TimePoint begin = SteadyClock::SteadyNow();
  work();
  return static_cast<double>(bytes) / static_cast<double>((SteadyClock::SteadyNow() - begin).count());
}

void PlainWrite(State& state, const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) Need(FileError(errno, "create", path));
  for (uint64_t at = 0; at < state.size_bytes(); at += kChunkBytes) {
    const uint64_t size = std::min(kChunkBytes, state.size_bytes() - at);
    if (::write(fd, state.data() + at, size) != static_cast<ssize_t>(size)) Need(FileError(errno, "write", path));
  }
  if (::fsync(fd) != 0) Need(FileError(errno, "sync", path));
  ::close(fd);
}

void PlainRead(State& state, const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) Need(FileError(errno, "open", path));
  for (uint64_t at = 0; at < state.size_bytes(); at += kChunkBytes)
    if (::read(fd, state.data() + at, std::min(kChunkBytes, state.size_bytes() - at)) < 0)
      Need(FileError(errno, "read", path));
  ::close(fd);
}

void Save(const State& state, const std::string& root, uint64_t step) {
  SaveRequest request;
  request.root = root;
  request.identity = {"bench", Step(step), Generation(1), 1};
  request.writer = Rank(0);
  request.entries.push_back({0, {Rank(0)}, {Rank(0)}});
  Need(WritePart(state.registry(), request, nullptr).status());
  PublishRequest publish;
  publish.root = root;
  publish.job = "bench";
  publish.step = Step(step);
  publish.generation = Generation(1);
  publish.keep.newest = 1000;  // removing old ones is no part of the measurement
  Need(Publish(publish).status());
}

// Whatever ran before must not be paid for by what is measured next.
void Settle() { ::sync(); }

// The ratio is the median of the rounds' own; the budget is its lower bound.
Figure Rate(const std::string& id, const std::vector<double>& values, const std::vector<double>& baselines,
            std::optional<double> budget) {
  std::vector<double> ratios;
  for (size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / baselines[i]);
  Figure figure{id, Median(values), "GB/s", Median(baselines), Median(ratios), budget};
  figure.ok = !budget || *figure.ratio >= *budget;
  figure.more = {{"runs", Rounded(values)}, {"baseline_runs", Rounded(baselines)}};
  return figure;
}

void Measure(const Options& options, const std::string& folder, Figures& figures) {
  State state(options);
  const uint64_t bytes = state.size_bytes();
  const std::string root = folder + "/root", plain = folder + "/plain";
  std::vector<double> save, write, load, read;
  for (int round = -1; round < options.rounds; ++round) {  // the first one warms up and is not counted
    double saved = 0, wrote = 0;
    for (const bool ours : {round % 2 == 0, round % 2 != 0}) {
      std::filesystem::remove_all(ours ? root : plain);
      Settle();
      if (ours)
        saved = GigabytesPerSecond(bytes, [&] { Save(state, root, static_cast<uint64_t>(round + 2)); });
      else
        wrote = GigabytesPerSecond(bytes, [&] { PlainWrite(state, plain); });
    }
    const auto newest = FindNewestComplete(root);
    Need(newest.status());
    const double loaded = GigabytesPerSecond(bytes, [&] {
      Need(Load(state.registry(), {newest->path, Rank(0)}).status());
    });
    const double plainly = GigabytesPerSecond(bytes, [&] { PlainRead(state, plain); });
    if (round < 0) continue;
    save.push_back(saved);
    write.push_back(wrote);
    load.push_back(loaded);
    read.push_back(plainly);
  }
  figures.Add(Rate("save", save, write, 0.9));
  figures.Add(Rate("load", load, read, {}));
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"The save path against a plain large sequential write with fsync"};
  app.add_option("--mib", options.mib, "MiB of state")->check(CLI::Range(1, 1 << 20));
  app.add_option("--tensors", options.tensors, "Number of tensors")->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", options.rounds, "Measured rounds")->check(CLI::Range(1, 1000));
  app.add_option("--dir", options.folder, "Folder on the disk to measure (default: the current one)");
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);

  std::string folder = (options.folder.empty() ? "." : options.folder) + "/bench-save-XXXXXX";
  if (!::mkdtemp(folder.data())) Need(FileError(errno, "make folder", folder));
  Figures figures("save");
  Measure(options, folder, figures);
  std::filesystem::remove_all(folder);
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
