// gpu_nccl_check: NCCL between two ranks that share one device, each a process with a host id of its own
// (transports-and-faults 2.5: NCCL refuses two ranks with equal host and bus id).
//
// What: the link opens as NCCL, moves messages of many sizes both ways at once between host and device memory,
// unchanged; groups of two generations are made and dropped; an abort ends a receive whose kernel spins on a silent
// peer; a peer that is killed ends a receive. Figures: rate with and without checksums ("not a product figure": two
// processes take turns on one device, over loopback), a rank that sends to itself (the engine's limit), times of init,
// abort and death. The parent has no context; it starts both ranks and bounds their time. Exit codes: 0 all passed, or
// there is no device (one line says why); 1 otherwise.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "integrations/examples/byte_lm/device/device_session.h"
#include "replica/links/make_link.h"
#include "replica/stream/nccl_groups.h"
#include "runtime/base/random.h"
#include "tests/bench/figures.h"
#include "tests/support/directory_store.h"

namespace kintsugi::bench {
namespace {

using namespace std::chrono_literals;
using byte_lm::device::DevicePlace;
using byte_lm::device::DeviceSession;

constexpr int kNoDevice = 77;
constexpr double kAbortBudgetMs = 100;

struct Options {
  int device = 0;
  int rank = -1;  // of a child
  std::string store;
  uint64_t mib = 256;
  double limit_seconds = 120;
  std::string json;
};

TimePoint Soon(Duration d = 60s) { return SteadyClock::SteadyNow() + d; }

double Ms(TimePoint since) { return ToMilliseconds(SteadyClock::SteadyNow() - since); }

// Device memory of a size, for a scope.
class DeviceBytes {
 public:
  DeviceBytes(const CudaDevice& device, uint64_t size) : device_(device), size_(size) {
    Need(device.Bind());
    Need(device.Check(device.driver().memory_allocate(&at_, size), "cuMemAlloc"));
  }
  ~DeviceBytes() { device_.driver().memory_free(at_); }
  Memory memory() const {
    return {.data = data(), .size_bytes = size_, .kind = MemoryKind::kDevice, .device = device_.ordinal()};
  }
  void* data() const { return reinterpret_cast<void*>(at_); }

 private:
  const CudaDevice& device_;
  const uint64_t size_;
  uint64_t at_ = 0;
};

std::vector<uint8_t> Pattern(uint64_t seed, size_t size) {
  Random random(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

// Takes checksums where the link can give them, and drops them.
class SumsOnly final : public PieceObserver {
 public:
  void Passed(const void*, uint64_t) override {}
  uint64_t WantsBlockSums() const override { return uint64_t{1} << 20; }
  void PassedSums(const uint64_t*, uint64_t) override {}
};

class Rank2 {
 public:
  Rank2(const Options& options, std::shared_ptr<CudaDevice> device, std::shared_ptr<const NcclApi> api)
      : options_(options),
        store_(options.store),
        device_(std::move(device)),
        api_(std::move(api)),
        memory_(device_),
        low_(options.rank == 0),
        figures_("nccl_pair") {
    const auto code = byte_lm::device::MakeCudaCode(options.device);
    if (code.ok()) kernels_ = code->state_kernels;
  }

  int Run() {
    Step("a link between two ranks of one device opens over NCCL", [&] { return OpenLink(); });
    if (link_) {
      Step("messages cross both ways at once, unchanged", [&] { return Cross(); });
      Step("rate", [&] { return Rates(); });
      Step("an abort ends a receive from a silent peer", [&] { return AbortSilent(); });
    }
    Step("groups of two generations", [&] { return Groups(); });
    if (low_) Step("a rank sends to itself", [&] { return ToSelf(); });
    Step("a killed peer ends a receive", [&] { return PeerDies(); });
    if (!low_) return failed_ ? 1 : 0;
    const int budgets = figures_.Finish(options_.json);
    return failed_ || budgets != 0 ? 1 : 0;
  }

 private:
  void Step(const char* name, const std::function<Status()>& body) {
    const Status status = body();
    failed_ = failed_ || !status.ok();
    if (low_ || !status.ok())
      std::printf("%s rank %d: %s%s%s\n", status.ok() ? "ok     " : "FAILED ", options_.rank, name,
                  status.ok() ? "" : ": ", status.ok() ? "" : status.ToString().c_str());
    std::fflush(stdout);
  }

  Result<std::unique_ptr<Link>> Open(const char* name) {
    return MakeLink(store_, {.generation = Generation(1),
                             .self = Rank(options_.rank),
                             .peer = Rank(1 - options_.rank),
                             .name = name,
                             .deadline = Soon(),
                             .prefer = LinkPreference::kNccl,
                             .device = options_.device,
                             .kernels = kernels_});
  }

  Status OpenLink() {
    const TimePoint start = SteadyClock::SteadyNow();
    KINTSUGI_ASSIGN_OR_RETURN(link_, Open("pair"));
    figures_.Add(AtMost("nccl/link-opened", Ms(start), "ms", std::nullopt));
    if (link_->kind() == "nccl") return Status::Ok();
    return {StatusCode::kInternal, "it opened as " + std::string(link_->kind())};
  }

  Status Cross() {
    Status sent;
    std::thread sender([&] {
      for (size_t size : kSizes) {
        auto bytes = Pattern(size + static_cast<size_t>(options_.rank), size);
        DeviceBytes on_device(*device_, std::max<size_t>(size, 1));
        if (sent.ok()) sent = link_->Send({.data = bytes.data(), .size_bytes = size}, 0, size, Soon());
        if (sent.ok()) sent = memory_.Write(on_device.data(), bytes.data(), size);
        if (sent.ok()) sent = link_->Send(on_device.memory(), 0, size, Soon());
      }
    });
    Status received;
    for (size_t size : kSizes) {
      std::vector<uint8_t> host(size), copy(size);
      DeviceBytes on_device(*device_, std::max<size_t>(size, 1));
      if (received.ok()) received = link_->Receive(on_device.data(), size, Soon());
      if (received.ok()) received = link_->Receive(host.data(), size, Soon());
      if (received.ok()) received = memory_.Read(copy.data(), on_device.data(), size);
      const auto expected = Pattern(size + static_cast<size_t>(1 - options_.rank), size);
      if (received.ok() && (host != expected || copy != expected))
        received = Status(StatusCode::kDataLoss, "a message of " + std::to_string(size) + " bytes arrived changed");
    }
    sender.join();
    KINTSUGI_RETURN_IF_ERROR(sent);
    return received;
  }

  Status Rates() {
    const uint64_t size = options_.mib << 20;
    DeviceBytes bytes(*device_, size);
    for (const bool sums : {false, true}) {
      SumsOnly observer;
      std::vector<double> rates;
      for (int run = -1; run < 3; ++run) {
        const TimePoint start = SteadyClock::SteadyNow();
        PieceObserver* const watch = sums ? &observer : nullptr;
        KINTSUGI_RETURN_IF_ERROR(low_ ? link_->Send(bytes.memory(), 0, size, Soon(), watch)
                                      : link_->Receive(bytes.data(), size, Soon(), watch));
        if (run >= 0) rates.push_back(static_cast<double>(size) / Ms(start) / 1e6);
      }
      Figure figure{std::string("nccl/two-ranks-one-device/") + (sums ? "checksums" : "plain"), Median(rates), "GB/s"};
      figure.more = {{"note", "not a product figure: two processes take turns on one device, over loopback"},
                     {"kernels", kernels_ != nullptr}};
      figures_.Add(figure);
    }
    return Status::Ok();
  }

  // The lower rank waits for what never comes.
  Status AbortSilent() {
    if (!low_) return Meet("aborted");
    DeviceBytes bytes(*device_, 1 << 20);
    Status received;
    std::atomic<double> left_ms{-1};
    TimePoint abort_at;
    std::thread receiver([&] {
      received = link_->Receive(bytes.data(), 1 << 20, Soon());
      left_ms = Ms(abort_at);
    });
    std::this_thread::sleep_for(500ms);
    abort_at = SteadyClock::SteadyNow();
    link_->Abort();
    receiver.join();
    const TimePoint freeing = SteadyClock::SteadyNow();
    link_.reset();  // waits until the communicators are freed: the kernel has left
    figures_.Add(AtMost("nccl/abort-returns", left_ms, "ms", kAbortBudgetMs));
    figures_.Add(AtMost("nccl/abort-freed", left_ms + Ms(freeing), "ms", std::nullopt));
    KINTSUGI_RETURN_IF_ERROR(Meet("aborted"));
    if (received.code() == StatusCode::kCancelled) return Status::Ok();
    return {StatusCode::kInternal, "the receive ended with " + received.ToString()};
  }

  Status Groups() {
    link_.reset();
    const std::vector<NcclGroup> layout = {{"world", {Rank(0), Rank(1)}}, {"again", {Rank(1), Rank(0)}}};
    std::unique_ptr<NcclGroups> groups;
    for (uint64_t generation : {2, 3}) {
      const TimePoint start = SteadyClock::SteadyNow();
      groups.reset();
      auto made =
          NcclGroups::Connect(store_, api_, device_, layout,
                              {.generation = Generation(generation), .self = Rank(options_.rank), .deadline = Soon()});
      KINTSUGI_RETURN_IF_ERROR(made.status());
      groups = std::move(made).value();
      figures_.Add(AtMost("nccl/groups-" + std::to_string(generation - 1), Ms(start), "ms", std::nullopt));
    }
    return Status::Ok();
  }

  Status ToSelf() {
    NcclUniqueId id;
    if (const int code = api_->get_unique_id(&id); code != kNcclSuccess)
      return {StatusCode::kUnavailable, api_->Describe("ncclGetUniqueId", code, nullptr)};
    KINTSUGI_ASSIGN_OR_RETURN(auto alone, NcclCommunicators::Init(api_, device_, {{.ranks = 1, .rank = 0, .ids = {id}}},
                                                                  {.deadline = Soon()}));
    const uint64_t size = options_.mib << 20;
    DeviceBytes from(*device_, size), to(*device_, size);
    KINTSUGI_ASSIGN_OR_RETURN(const auto stream, byte_lm::device::DeviceStream::Make(device_, 60s));
    std::vector<double> rates;
    for (int run = -1; run < 5; ++run) {
      const TimePoint start = SteadyClock::SteadyNow();
      KINTSUGI_RETURN_IF_ERROR(alone->Call(
          0, "a message to itself",
          [&](NcclComm comm) {
            api_->group_start();
            const int sent = api_->send(from.data(), size, kNcclInt8, 0, comm, stream->handle());
            const int received = api_->receive(to.data(), size, kNcclInt8, 0, comm, stream->handle());
            const int ended = api_->group_end();
            return sent > kNcclSuccess && sent != kNcclInProgress           ? sent
                   : received > kNcclSuccess && received != kNcclInProgress ? received
                                                                            : ended;
          },
          Soon()));
      KINTSUGI_RETURN_IF_ERROR(stream->Wait());
      KINTSUGI_RETURN_IF_ERROR(alone->AsyncError(0));
      if (run >= 0) rates.push_back(static_cast<double>(size) / Ms(start) / 1e6);
    }
    Figure figure{"nccl/to-itself", Median(rates), "GB/s"};
    figure.more = {{"note", "what the engine can do at most within one device"}};
    figures_.Add(figure);
    return Status::Ok();
  }

  // The last step: the higher rank does not live through it.
  Status PeerDies() {
    auto link = Open("death");
    KINTSUGI_RETURN_IF_ERROR(link.status());
    if (!low_) {
      KINTSUGI_RETURN_IF_ERROR(Meet("dying"));
      std::this_thread::sleep_for(500ms);
      if (failed_) return {StatusCode::kInternal, "an earlier step failed"};
      raise(SIGKILL);
    }
    KINTSUGI_RETURN_IF_ERROR(Meet("dying"));
    DeviceBytes bytes(*device_, 1 << 20);
    const TimePoint start = SteadyClock::SteadyNow();
    const Status received = (*link)->Receive(bytes.data(), 1 << 20, Soon(30s));
    figures_.Add(AtMost("nccl/death-noticed", std::max(0.0, Ms(start) - 500), "ms", std::nullopt));
    if (received.code() == StatusCode::kCommFailure || received.code() == StatusCode::kDeadlineExceeded)
      return Status::Ok();
    return {StatusCode::kInternal, "the receive ended with " + received.ToString()};
  }

  // Both ranks have come this far.
  Status Meet(const std::string& name) {
    KINTSUGI_RETURN_IF_ERROR(store_.Set(name + std::to_string(options_.rank), {1}));
    return store_.Get(name + std::to_string(1 - options_.rank), Soon()).status();
  }

  static constexpr size_t kSizes[] = {0, 1, 4095, 65537, 1 << 20, (5 << 20) + 3, 70 << 20, 7};
  const Options& options_;
  DirectoryStore store_;
  const std::shared_ptr<CudaDevice> device_;
  const std::shared_ptr<const NcclApi> api_;
  const CudaMemory memory_;
  const bool low_;
  std::shared_ptr<const ByteKernels> kernels_;
  std::unique_ptr<Link> link_;
  Figures figures_;
  bool failed_ = false;
};

int RunRank(const Options& options) {
  DeviceSession::PrepareEnvironment({.devices = 1, .local_ranks = 2, .world_size = 2});
  auto device = CudaDevice::Open(options.device);
  auto api = LoadNccl();
  for (const Status& status : {device.status(), api.status()})
    if (!status.ok()) {
      if (options.rank == 0) std::printf("SKIPPED: %s\n", status.message().c_str());
      return kNoDevice;
    }
  return Rank2(options, std::move(device).value(), std::move(api).value()).Run();
}

// Ends both ranks when their time is over.
int RunParent(const Options& options, char** argv, int argc) {
  const auto folder = std::filesystem::temp_directory_path() / ("gpu_nccl_check-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  pid_t children[2];
  for (int rank = 0; rank < 2; ++rank) {
    children[rank] = fork();
    if (children[rank] != 0) continue;
    std::vector<std::string> words(argv, argv + argc);
    words.insert(words.end(), {"--rank", std::to_string(rank), "--store", folder.string()});
    std::vector<char*> args;
    for (std::string& word : words) args.push_back(word.data());
    args.push_back(nullptr);
    execv("/proc/self/exe", args.data());
    _exit(127);
  }
  const TimePoint end = Soon(std::chrono::milliseconds(static_cast<int64_t>(options.limit_seconds * 1e3)));
  int code = 1;
  bool low_ended = false;
  while (!low_ended && SteadyClock::SteadyNow() < end) {
    int status = 0;
    low_ended = waitpid(children[0], &status, WNOHANG) == children[0];
    if (low_ended) code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    std::this_thread::sleep_for(20ms);
  }
  if (!low_ended) std::printf("FAILED  not done within %.0f s\n", options.limit_seconds);
  for (int rank = low_ended ? 1 : 0; rank < 2; ++rank) {
    std::this_thread::sleep_for(100ms);  // it kills itself, unless something failed
    kill(children[rank], SIGKILL);
    int status = 0;
    waitpid(children[rank], &status, 0);
    if (code == 0 && WIFEXITED(status) && WEXITSTATUS(status) != 0) code = WEXITSTATUS(status);
  }
  std::filesystem::remove_all(folder);
  return code == kNoDevice ? 0 : code;
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) {
  kintsugi::bench::Options options;
  CLI::App app{"gpu_nccl_check: NCCL between two ranks that share a device"};
  app.add_option("--device", options.device, "Which device")->capture_default_str();
  app.add_option("--mib", options.mib, "Size of the messages whose rate is measured")->capture_default_str();
  app.add_option("--limit-seconds", options.limit_seconds, "Ends both ranks after so long")->capture_default_str();
  app.add_option("--rank", options.rank, "")->group("");
  app.add_option("--store", options.store, "")->group("");
  kintsugi::bench::AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  options.json = kintsugi::bench::JsonTarget(app, options.json);
  return options.rank >= 0 ? kintsugi::bench::RunRank(options) : kintsugi::bench::RunParent(options, argv, argc);
}
