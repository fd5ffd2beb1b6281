// bench_cuda_kernels: the kernels of byte_kernels.h on a CUDA device against a device-to-device copy.
//
// Every case is measured beside a cudaMemcpyAsync from device to device of the same size, in turn, with events around
// so many calls that a batch moves at least 4 GiB; figures are medians of the batches, ratios medians of ratios. GB/s
// are (bytes read + bytes written) / 2, which for a copy is its size; so a checksum, which only reads, can reach twice
// the copy's figure. Budget: 0.85 of the copy from the largest size on (4 GiB by default); smaller sizes are reported,
// and so is the latency of one launch over many small regions. Without a device: one line that says why, no figures,
// exit 0.
#include <cuda_runtime.h>

#include <cstdio>
#include <functional>

#include "kernels/byte_kernels.h"
#include "kernels/cuda_kernels.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {
namespace {

constexpr double kBudget = 0.85;
constexpr uint64_t kBatchBytes = uint64_t{4} << 30;

struct Options {
  int device = 0;
  uint64_t mib_max = 4096;
  int runs = 7;
  std::string json;
};

void NeedCuda(cudaError_t error) {
  Need(error == cudaSuccess ? Status::Ok() : Status(StatusCode::kInternal, cudaGetErrorString(error)));
}

struct Case {
  std::string id;
  double moved;  // (read + written) / 2, of the size
  std::function<Status(uint64_t size_bytes)> body;
};

class Bench {
 public:
  Bench(const Options& options, const ByteKernels& kernels) : options_(options), kernels_(kernels) {
    NeedCuda(cudaSetDevice(options.device));
    NeedCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    NeedCuda(cudaEventCreate(&start_));
    NeedCuda(cudaEventCreate(&end_));
    const uint64_t size = options.mib_max << 20;
    for (uint8_t** memory : {&a_, &b_}) NeedCuda(cudaMalloc(memory, size));
    NeedCuda(cudaMalloc(&sums_, 8 * SumBlocks(size, kSumBlockBytes)));
    NeedCuda(cudaMalloc(&expected_, 8 * SumBlocks(size, kSumBlockBytes)));
    NeedCuda(cudaMalloc(&index_, 8));
    for (uint8_t* memory : {a_, b_}) NeedCuda(cudaMemset(memory, 0x5A, size));
    AddCases();
  }

  void Run(Figures& figures) {
    for (uint64_t mib = 1; mib <= options_.mib_max; mib *= 4) {
      for (const Case& one : cases_) Measure(figures, one, mib << 20, mib * 4 > options_.mib_max);
    }
    MeasureSmall(figures);
  }

 private:
  double Seconds(uint64_t calls, const std::function<Status()>& body) {
    NeedCuda(cudaEventRecord(start_, stream_));
    for (uint64_t i = 0; i < calls; ++i) Need(body());
    NeedCuda(cudaEventRecord(end_, stream_));
    NeedCuda(cudaEventSynchronize(end_));
    float ms = 0;
    NeedCuda(cudaEventElapsedTime(&ms, start_, end_));
    return ms / 1e3;
  }

  void Measure(Figures& figures, const Case& one, uint64_t size, bool has_budget) {
    const uint64_t calls = std::max<uint64_t>(1, kBatchBytes / size);
    const auto copy = [&] {
      NeedCuda(cudaMemcpyAsync(b_, a_, size, cudaMemcpyDeviceToDevice, stream_));
      return Status::Ok();
    };
    std::vector<double> rates, bases, ratios;
    for (int run = -1; run < options_.runs; ++run) {
      const double bytes = static_cast<double>(size) * static_cast<double>(calls);
      const double base = bytes / Seconds(calls, copy) / 1e9;
      const double rate = one.moved * bytes / Seconds(calls, [&] { return one.body(size); }) / 1e9;
      if (run < 0) continue;  // loads the code and warms the clocks
      bases.push_back(base);
      rates.push_back(rate);
      ratios.push_back(rate / base);
    }
    Figure figure{one.id + "/" + std::to_string(size >> 20) + "MiB", Median(rates), "GB/s", Median(bases),
                  Median(ratios)};
    if (has_budget) figure.budget = kBudget;
    figure.ok = !has_budget || *figure.ratio >= kBudget;
    figure.more = {{"baseline_id", "cudaMemcpyAsync, device to device"}, {"runs", Rounded(rates)}};
    figures.Add(figure);
  }

  // 1,000 regions of 4 KiB in one call: what a launch costs.
  void MeasureSmall(Figures& figures) {
    std::vector<CopyPart> parts;
    for (uint64_t i = 0; i < 1000 && (i + 1) * 8192 <= options_.mib_max << 20; ++i)
      parts.push_back(
          {b_ + i * 4096, a_ + i * 8192, {.axes = 1, .length = {4096}, .to_stride = {1}, .from_stride = {1}}, 1});
    std::vector<double> micros;
    for (int run = -1; run < options_.runs; ++run) {
      const double seconds = Seconds(100, [&] { return kernels_.Copy(parts, {stream_}); });
      if (run >= 0) micros.push_back(seconds * 1e4);
    }
    figures.Add({"copy/" + std::to_string(parts.size()) + "x4KiB", Median(micros), "us"});
  }

  void AddCases() {
    const auto rows = [](uint64_t size, uint64_t row) {
      return Region{.axes = 2,
                    .length = {static_cast<int64_t>(size / 2 / row), static_cast<int64_t>(row / 4)},
                    .stride = {static_cast<int64_t>(2 * row), 4}};
    };
    cases_.push_back(
        {"copy", 1, [=, this](uint64_t size) {
           const CopyPart part{
               b_, a_, {.axes = 1, .length = {static_cast<int64_t>(size)}, .to_stride = {1}, .from_stride = {1}}, 1};
           return kernels_.Copy({&part, 1}, {stream_});
         }});
    for (uint64_t row : {256, 4096}) {
      const std::string name = std::to_string(row) + "B-rows";
      cases_.push_back({"pack/" + name, 0.5, [=, this](uint64_t size) {
                          const PackPart part{a_, rows(size, row), 4, 0};
                          return kernels_.Pack({&part, 1}, b_, size / 2, nullptr, {stream_});
                        }});
      cases_.push_back({"unpack/" + name, 0.5, [=, this](uint64_t size) {
                          const PackPart part{b_, rows(size, row), 4, 0};
                          return kernels_.Unpack({&part, 1}, a_, size / 2, nullptr, nullptr, nullptr, {stream_});
                        }});
      cases_.push_back({"pack-checksum/" + name, 0.5, [=, this](uint64_t size) {
                          const PackPart part{a_, rows(size, row), 4, 0};
                          const BlockSums sums{sums_};
                          return kernels_.Pack({&part, 1}, b_, size / 2, &sums, {stream_});
                        }});
      cases_.push_back({"unpack-verify/" + name, 0.5, [=, this](uint64_t size) {
                          const PackPart part{b_, rows(size, row), 4, 0};
                          const BlockSums sums{sums_};
                          return kernels_.Unpack({&part, 1}, a_, size / 2, &sums, expected_, index_, {stream_});
                        }});
    }
    cases_.push_back(
        {"checksum", 0.5, [=, this](uint64_t size) { return kernels_.Checksum(a_, size, {sums_}, {stream_}); }});
    cases_.push_back(
        {"compare", 1, [=, this](uint64_t size) { return kernels_.Compare(a_, a_, size, index_, {stream_}); }});
    AddCasts();
  }

  void AddCasts() {
    using enum ElementType;
    const std::pair<const char*, std::pair<ElementType, ElementType>> casts[] = {
        {"float32-bfloat16", {kFloat32, kBFloat16}},        {"bfloat16-float32", {kBFloat16, kFloat32}},
        {"float32-float16", {kFloat32, kFloat16}},          {"float16-float32", {kFloat16, kFloat32}},
        {"float32-float8_e4m3fn", {kFloat32, kFloat8E4M3}}, {"float8_e4m3fn-float32", {kFloat8E4M3, kFloat32}},
        {"bfloat16-float8_e5m2", {kBFloat16, kFloat8E5M2}}};
    for (const auto& [name, types] : casts) {
      const auto [from, to] = types;
      const uint64_t from_size = ElementSize(from), to_size = ElementSize(to), wide = std::max(from_size, to_size);
      cases_.push_back({std::string("cast/") + name,
                        static_cast<double>(from_size + to_size) / static_cast<double>(2 * wide),
                        [=, this, from = from, to = to](uint64_t size) {
                          const CastPart part{b_,
                                              to,
                                              a_,
                                              from,
                                              {.axes = 1,
                                               .length = {static_cast<int64_t>(size / wide)},
                                               .to_stride = {static_cast<int64_t>(to_size)},
                                               .from_stride = {static_cast<int64_t>(from_size)}}};
                          return kernels_.Cast({&part, 1}, {stream_});
                        }});
    }
  }

  const Options options_;
  const ByteKernels& kernels_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
  uint8_t *a_ = nullptr, *b_ = nullptr;
  uint64_t *sums_ = nullptr, *expected_ = nullptr, *index_ = nullptr;
  std::vector<Case> cases_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Pack, unpack, cast, checksum and compare kernels on a CUDA device, against a device-to-device copy"};
  app.add_option("--device", options.device, "CUDA device")->capture_default_str();
  app.add_option("--mib-max", options.mib_max, "Largest size; sizes are 1 MiB times powers of 4")
      ->check(CLI::Range(1, 1 << 15))
      ->capture_default_str();
  app.add_option("--runs", options.runs, "Measured batches")->check(CLI::Range(1, 1000))->capture_default_str();
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  const auto kernels = MakeCudaKernels(options.device);
  if (!kernels.ok()) {
    std::fprintf(stderr, "skipped: no device: %s\n", kernels.status().message().c_str());
    return 0;
  }
  Figures figures("cuda-kernels");
  Bench(options, **kernels).Run(figures);
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
