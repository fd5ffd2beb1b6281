// bench_cuda_staging: what state between a device and its host costs, against the link's limit.
//
// The limit is a bare asynchronous copy of the same size between device memory and pinned host memory, in the same run
// and in turn; figures are medians, ratios medians of ratios. CudaMemory copies to and from pinned memory directly
// (what in-memory snapshots use) and to and from anybody's memory through its pinned pieces (the stream over Gloo,
// saves). Checksums of device memory are measured beside these where the build has kernels. Budget: 0.9 of the limit
// for pinned memory; the rest is reported. Without a device: one line that says why, no figures, exit 0.
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "integrations/examples/byte_lm/device/kernel_launcher.h"
#include "replica/device/cuda_memory.h"
#include "replica/stream/cuda_driver.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {
namespace {

constexpr double kBudget = 0.9;
constexpr uint64_t kSumBlock = uint64_t{1} << 20;

struct Options {
  int device = 0;
  uint64_t mib = 1024;
  int runs = 7;
  std::string json;
};

double SecondsOf(const std::function<Status()>& body) {
  const TimePoint start = SteadyClock::SteadyNow();
  Need(body());
  return ToMilliseconds(SteadyClock::SteadyNow() - start) / 1e3;
}

class Bench {
 public:
  Bench(const Options& options, std::shared_ptr<CudaMemory> memory)
      : options_(options), memory_(std::move(memory)), cuda_(*memory_->cuda()), bytes_(options.mib << 20) {
    Need(cuda_.Bind());
    const CudaDriver& driver = cuda_.driver();
    Need(cuda_.Check(driver.stream_create(&stream_, 1), "cuStreamCreate"));
    Need(cuda_.Check(driver.event_create(&event_, 2), "cuEventCreate"));
    Need(cuda_.Check(driver.memory_allocate(&device_, bytes_), "cuMemAlloc"));
    auto pinned = memory_->AllocateHost(bytes_);
    Need(pinned.status());
    pinned_ = std::move(pinned).value();
    heap_.resize(bytes_);
    std::memset(pinned_.get(), 0x5A, bytes_);
    std::memset(heap_.data(), 0x5A, bytes_);
  }
  ~Bench() {
    cuda_.driver().memory_free(device_);
    cuda_.driver().event_destroy(event_);
    cuda_.driver().stream_destroy(stream_);
  }

  void Run(Figures& figures) {
    void* const device = reinterpret_cast<void*>(device_);
    const auto to_device = [&] { return Bare(cuda_.driver().copy_to_device(device_, pinned_.get(), bytes_, stream_)); };
    const auto to_host = [&] { return Bare(cuda_.driver().copy_to_host(pinned_.get(), device_, bytes_, stream_)); };
    Measure(
        figures, "host-to-device/pinned", to_device, [&] { return memory_->Write(device, pinned_.get(), bytes_); },
        true);
    Measure(
        figures, "device-to-host/pinned", to_host, [&] { return memory_->Read(pinned_.get(), device, bytes_); }, true);
    Measure(
        figures, "host-to-device/heap", to_device, [&] { return memory_->Write(device, heap_.data(), bytes_); }, false);
    Measure(
        figures, "device-to-host/heap", to_host, [&] { return memory_->Read(heap_.data(), device, bytes_); }, false);
    if (!memory_->CanSum()) return;
    std::vector<uint64_t> sums((bytes_ + kSumBlock - 1) / kSumBlock);
    Measure(
        figures, "checksum-on-device", to_host,
        [&] { return memory_->BlockSums(device, bytes_, kSumBlock, sums.data()); }, false);
  }

 private:
  // A copy that was enqueued, to its end.
  Status Bare(int enqueued) {
    KINTSUGI_RETURN_IF_ERROR(cuda_.Check(enqueued, "a bare copy"));
    KINTSUGI_RETURN_IF_ERROR(cuda_.Check(cuda_.driver().event_record(event_, stream_), "cuEventRecord"));
    for (;;) {
      const int result = cuda_.driver().event_query(event_);
      if (result != kCudaNotReady) return cuda_.Check(result, "cuEventQuery");
      std::this_thread::yield();
    }
  }

  void Measure(Figures& figures, const std::string& id, const std::function<Status()>& limit,
               const std::function<Status()>& body, bool has_budget) {
    std::vector<double> rates, limits, ratios;
    for (int run = -1; run < options_.runs; ++run) {
      const double bytes = static_cast<double>(bytes_);
      const double bare = bytes / SecondsOf(limit) / 1e9, rate = bytes / SecondsOf(body) / 1e9;
      if (run < 0) continue;  // makes the buffers
      limits.push_back(bare);
      rates.push_back(rate);
      ratios.push_back(rate / bare);
    }
    Figure figure{"staging/" + id, Median(rates), "GB/s", Median(limits), Median(ratios)};
    if (has_budget) figure.budget = kBudget;
    figure.ok = !has_budget || *figure.ratio >= kBudget;
    figure.more = {{"baseline_id", "a bare copy to or from pinned memory"}, {"runs", Rounded(rates)}};
    figures.Add(figure);
  }

  const Options& options_;
  const std::shared_ptr<CudaMemory> memory_;
  const CudaDevice& cuda_;
  const uint64_t bytes_;
  void *stream_ = nullptr, *event_ = nullptr;
  uint64_t device_ = 0;
  std::shared_ptr<uint8_t> pinned_;
  std::vector<uint8_t> heap_;
};

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) {
  using namespace kintsugi;
  bench::Options options;
  CLI::App app{"bench_cuda_staging: copies of state between a device and its host against the link's limit"};
  app.add_option("--device", options.device, "Which device")->capture_default_str();
  app.add_option("--mib", options.mib, "Size of a copy")->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--runs", options.runs, "Measurements of each")->check(CLI::Range(1, 100))->capture_default_str();
  bench::AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  const auto code = byte_lm::device::MakeCudaCode(options.device);
  auto memory = CudaMemory::Open(options.device, code.ok() ? code->state_kernels : nullptr);
  if (!memory.ok()) {
    std::printf("bench_cuda_staging: no device: %s\n", memory.status().message().c_str());
    return 0;
  }
  bench::Figures figures("cuda_staging");
  bench::Bench(options, std::move(memory).value()).Run(figures);
  return figures.Finish(bench::JsonTarget(app, options.json));
}
