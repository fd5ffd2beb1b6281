// bench_pack: packing, unpacking, permuting and casting regions of host memory against one memcpy.
//
// Pack and unpack: a [rows, 2 x row] tensor's left half, to and from contiguous bytes, by length of row. Permutes and
// casts of whole tensors. One thread; each case is measured beside a memcpy of its own, ratios are those of the two,
// values are medians. Times are CPU time of the thread, because a shared machine's clock counts its neighbours. GB/s
// are (bytes read + bytes written) / 2, which for a memcpy is its size. Budget: pack and unpack of rows of 4 KiB and
// more reach 0.8 of the memcpy; all others are reported, and so are rows that begin inside a cache line ("shifted"). Where
// torch is, permutes and casts have its rate beside ours (pack_peers.py, one thread, just behind).
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "kernels/host_cast.h"
#include "kernels/host_region.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {
namespace {

constexpr uint64_t kBudgetRowBytes = 4096;
constexpr double kBudget = 0.8;

struct Options {
  uint64_t mib = 256;
  int runs = 7;
  std::string python = KINTSUGI_SOURCE_DIR "/build/python/bin/python";
  std::string json;
};

struct Case {
  std::string id;
  double bytes = 0;  // (read + written) / 2
  std::function<void()> body;
  std::optional<double> budget;
};

std::string RowName(uint64_t bytes) {
  return bytes < 1024 ? std::to_string(bytes) + "B" : std::to_string(bytes / 1024) + "KiB";
}

// Memory is aligned as allocators of tensors align it.
struct alignas(64) Line {
  std::array<uint8_t, 64> bytes{};
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), size_(options.mib << 20), wide_(2 * size_ / 64 + 1), narrow_(size_ / 64 + 1) {
    AddRows();
    AddPermutes();
    AddCasts();
  }

  void Run(Figures& figures) {
    for (int run = -1; run < options_.runs; ++run) {  // the first round maps pages and is not counted
      for (const Case& one : cases_) {
        const double base = Rate(static_cast<double>(size_), [&] { std::memcpy(narrow(), wide(), size_); });
        const double rate = Rate(one.bytes, one.body);
        if (run < 0) continue;
        rates_[one.id].push_back(rate);
        ratios_[one.id].push_back(rate / base);
        rates_["memcpy"].push_back(base);
      }
    }
    torch_ = AskPeer(options_.python, KINTSUGI_SOURCE_DIR "/tests/bench/pack_peers.py", options_.mib, options_.runs);
    Figure base{"memcpy", Median(rates_["memcpy"]), "GB/s"};
    base.more["runs"] = Rounded(rates_["memcpy"]);
    figures.Add(base);
    for (const Case& one : cases_) figures.Add(FigureOf(one));
  }

 private:
  static double Rate(double bytes, const std::function<void()>& body) {
    const auto cpu = [] {
      timespec now{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
    };
    const double start = cpu();
    body();
    return bytes / (cpu() - start) / 1e9;
  }

  Figure FigureOf(const Case& one) {
    const auto& rates = rates_[one.id];
    Figure figure{one.id, Median(rates), "GB/s", Median(rates_["memcpy"]), Median(ratios_[one.id]), one.budget};
    figure.ok = !one.budget || *figure.ratio >= *one.budget;
    figure.more = {{"baseline_id", "memcpy"}, {"runs", Rounded(rates)}};
    if (torch_.is_null() || !torch_["rates"].contains(one.id)) return figure;
    const double torch = Median(torch_["rates"][one.id].get<std::vector<double>>());
    figure.more["torch"] = {{"version", torch_["version"]}, {"value", torch}, {"times", figure.value / torch}};
    return figure;
  }

  uint8_t* wide() { return wide_.front().bytes.data(); }
  uint8_t* narrow() { return narrow_.front().bytes.data(); }

  // `shift` bytes past an aligned address.
  void AddRowCase(uint64_t row, uint64_t shift) {
    const auto row_bytes = static_cast<int64_t>(row);
    const Region region{
        .axes = 2, .length = {static_cast<int64_t>(size_) / row_bytes, row_bytes / 4}, .stride = {2 * row_bytes, 4}};
    const auto budget = row >= kBudgetRowBytes && shift == 0 ? std::optional(kBudget) : std::nullopt;
    const auto bytes = static_cast<double>(size_);
    const std::string id = RowName(row) + (shift ? "-shifted" : "");
    cases_.push_back(
        {"pack/" + id, bytes, [=, this] { PackRegion(narrow() + shift, wide() + shift, region, 4); }, budget});
    cases_.push_back(
        {"unpack/" + id, bytes, [=, this] { UnpackRegion(wide() + shift, narrow() + shift, region, 4); }, budget});
  }

  void AddRows() {
    for (uint64_t row : {16, 64, 256, 1024, 4096, 16384, 65536, 1048576}) AddRowCase(row, 0);
    AddRowCase(4096, 16);
  }

  // Result axis k is axis order[k] of a dense source.
  void AddPermute(const std::string& id, std::vector<int64_t> shape, std::vector<int> order, uint64_t element_bytes) {
    RegionPair region{.axes = static_cast<int>(shape.size())};
    std::copy(shape.begin(), shape.end(), region.length.begin());
    region.from_stride = DenseStrides(region.axes, region.length, element_bytes);
    RegionAxes permuted{};
    for (int k = 0; k < region.axes; ++k) permuted[k] = region.length[order[k]];
    const RegionAxes dense = DenseStrides(region.axes, permuted, element_bytes);
    for (int k = 0; k < region.axes; ++k) region.to_stride[order[k]] = dense[k];
    double bytes = static_cast<double>(element_bytes);
    for (int64_t length : shape) bytes *= static_cast<double>(length);
    cases_.push_back({id, bytes, [=, this] { CopyRegion(narrow(), wide(), region, element_bytes); }, {}});
  }

  void AddPermutes() {
    const auto quarter = static_cast<int64_t>(size_ / 4 / 4096);
    AddPermute("permute/2-d/float32", {quarter, 4096}, {1, 0}, 4);
    AddPermute("permute/2-d/bfloat16", {2 * quarter, 4096}, {1, 0}, 2);
    AddPermute("permute/4-d-0213/float32", {quarter / 64, 64, 32, 128}, {0, 2, 1, 3}, 4);
    AddPermute("permute/4-d-3210/float32", {quarter / 64, 64, 32, 128}, {3, 2, 1, 0}, 4);
  }

  void AddCasts() {
    using enum ElementType;
    const std::pair<const char*, std::pair<ElementType, ElementType>> casts[] = {
        {"float32-bfloat16", {kFloat32, kBFloat16}},
        {"bfloat16-float32", {kBFloat16, kFloat32}},
        {"float32-float16", {kFloat32, kFloat16}},
        {"float16-float32", {kFloat16, kFloat32}},
        {"float32-float8_e4m3fn", {kFloat32, kFloat8E4M3}},
        {"float8_e4m3fn-float32", {kFloat8E4M3, kFloat32}},
        {"float32-float64", {kFloat32, kFloat64}},
        {"float64-float32", {kFloat64, kFloat32}},
        {"float64-bfloat16", {kFloat64, kBFloat16}},
        {"int64-int32", {kInt64, kInt32}},
        {"float32-int32", {kFloat32, kInt32}}};
    for (const auto& [name, types] : casts) {
      const auto [from, to] = types;
      const uint64_t from_size = ElementSize(from), to_size = ElementSize(to);
      const auto count = static_cast<int64_t>(size_ / std::max(from_size, to_size));
      const RegionPair region{.axes = 1,
                              .length = {count},
                              .to_stride = {static_cast<int64_t>(to_size)},
                              .from_stride = {static_cast<int64_t>(from_size)}};
      const double bytes = static_cast<double>(count) * static_cast<double>(from_size + to_size) / 2;
      cases_.push_back({std::string("cast/") + name,
                        bytes,
                        [=, this, from = from, to = to] { CastRegion(narrow(), to, wide(), from, region); },
                        {}});
    }
  }

  const Options options_;
  const uint64_t size_;
  std::vector<Line> wide_, narrow_;
  std::vector<Case> cases_;
  std::map<std::string, std::vector<double>> rates_, ratios_;
  Json torch_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Packing, unpacking, permuting and casting regions of host memory, against one memcpy"};
  app.add_option("--mib", options.mib, "MiB copied by each case")
      ->check(CLI::Range(16, 1 << 14))
      ->capture_default_str();
  app.add_option("--runs", options.runs, "Measured rounds")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--python", options.python, "An interpreter that has torch, to be shown beside")->capture_default_str();
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  Figures figures("pack");
  Bench(options).Run(figures);
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
