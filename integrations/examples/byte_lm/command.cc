#include "integrations/examples/byte_lm/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "integrations/examples/byte_lm/worker.h"

namespace kintsugi::byte_lm {
namespace {

class StderrLog final : public LogSink {
 public:
  void Write(LogLevel level, std::string_view line) override {
    if (level >= LogLevel::kWarning) std::cerr << line << std::endl;
  }
};

struct Options {
  WorkerOptions worker;
  std::vector<std::string> data;
  std::string gate = "on";
  std::string device = "cpu";
  bool timings = false;
  std::vector<std::string> hold;
};

void AddOptions(CLI::App& app, Options& o) {
  auto& train = o.worker.train;
  auto& model = o.worker.model;
  app.add_option("--steps", train.steps, "Optimizer updates")->check(CLI::Range(1, 1000000000))->capture_default_str();
  app.add_option("--seed", train.seed, "Of weights, shuffling and dropout")->capture_default_str();
  app.add_option("--batch", train.batch, "Windows per data-parallel rank and step")->capture_default_str();
  app.add_option("--lr", train.learning_rate_max, "Highest learning rate")->capture_default_str();
  app.add_option("--warmup", train.warmup_steps, "Steps of linear warm-up")->capture_default_str();
  app.add_option("--layers", model.layers, "Transformer blocks")->capture_default_str();
  app.add_option("--width", model.width, "Width of the residual stream")->capture_default_str();
  app.add_option("--heads", model.heads, "Attention heads")->capture_default_str();
  app.add_option("--context", model.context, "Bytes the network sees at once")->capture_default_str();
  app.add_option("--dropout", model.dropout, "Dropout rate")->capture_default_str();
  app.add_option("--tp", o.worker.tensor_parallel, "Tensor-parallel ranks")
      ->check(CLI::IsMember({1, 2}))
      ->capture_default_str();
  app.add_option(
         "--replicas", o.worker.replicas,
         "Copies of every shard of optimizer state; 0: the fewest, two or more, that divide the data-parallel size")
      ->capture_default_str();
  app.add_flag("--elastic", o.worker.elastic,
               "Offer to go on with fewer ranks where some are lost for good: those that are left share the same batch");
  app.add_flag("--any-layout", o.worker.any_layout,
               "Offer to go on with any number of ranks that divides the batch of all: the optimizer's shards are cut anew");
  app.add_option("--gate", o.gate, "Barrier before every update")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--data", o.data, "Files or folders to train on; default: the licence texts of this system")
      ->take_all();
  app.add_option("--device", o.device,
                 "Where to train: cpu, or cuda: on an NVIDIA device, with cuBLAS and NCCL, the state in its memory")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_flag("--timings", o.timings, "Say on standard error how long the device and each generation's groups took");
  app.add_option("--ballast-mib", o.worker.ballast_mib, "Extra registered state, for transfer measurements");
  app.add_option("--samples", o.worker.sample_count, "Texts to write after training")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_option("--step-delay-us", o.worker.step_delay_us, "Sleep in every step, for measurements");
  app.add_option(
         "--reject-norm", o.worker.reject_norm,
         "Refuse steps whose gradients have a larger norm, or none that is a number: made again, such a step shows\n"
         "whether its data or a machine is to blame; 0: none")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--reject-most", o.worker.reject_most,
                 "Steps may be refused, also by `kintsugi run --veto`, and so many be left out; with --reject-norm 10")
      ->check(CLI::Range(0, 1000000000));
  app.add_option("--poison", o.worker.poison, "Steps whose batch is no good on the last rank, for tests")->take_all();
  app.add_option("--leave-out", o.worker.leave_out, "Steps to pass by, for tests")->take_all();
  app.add_option("--hold", o.hold,
                 "Keep ranks back until their groups are aborted, POINT:RANK[,RANK...]@STEP with POINT gradient-sync,\n"
                 "gate or update; repeatable: forces the uneven cases of a fault, for tests")
      ->take_all();
}

std::string Printable(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '\n' || (c >= ' ' && c <= '~') ? c : '?';
  return out;
}

Status ReadHolds(Options& options) {
  for (const std::string& text : options.hold) {
    KINTSUGI_ASSIGN_OR_RETURN(Hold hold, ParseHold(text));
    if (hold.point == Hold::Point::kGate && !options.worker.gate)
      return {StatusCode::kInvalidArgument, "hold '" + text + "': there is no gate with --gate off"};
    options.worker.holds.push_back(std::move(hold));
  }
  return Status::Ok();
}

void Say(const Options& options, const std::string& event, double milliseconds) {
  if (options.timings) std::cerr << "event=" << event << " elapsed_ms=" << milliseconds << std::endl;
}

Result<std::unique_ptr<device::DeviceSession>> OpenDevice(const Options& options, const device::DevicePlace& place,
                                                          const device::CodeFactory& code) {
  const TimePoint start = SteadyClock::SteadyNow();
  KINTSUGI_ASSIGN_OR_RETURN(auto session, device::DeviceSession::Open(place, code));
  Say(options, "device_opened", ToMilliseconds(SteadyClock::SteadyNow() - start));
  return session;
}

// State on devices goes from one to the other; where NCCL cannot, by way of their hosts.
ReplicaOptions ReplicaOptionsFor(const Options& options) {
  ReplicaOptions replica;
  if (options.worker.device) replica.prefer = LinkPreference::kNccl;
  return replica;
}

// The exit code, or why this rank could not train.
Result<int> Train(Options& options, const device::CodeFactory& code) {
  options.worker.gate = options.gate == "on";
  KINTSUGI_RETURN_IF_ERROR(ReadHolds(options));
  auto& train = options.worker.train;
  train.warmup_steps = std::min(train.warmup_steps, train.steps / 2);  // a short run is warm sooner
  KINTSUGI_RETURN_IF_ERROR(Validate(options.worker.model, options.worker.tensor_parallel));
  KINTSUGI_RETURN_IF_ERROR(Validate(options.worker.train));
  KINTSUGI_ASSIGN_OR_RETURN(const auto text, TextData::Load(options.data));
  // Opened before the rank joins, and so before anybody waits for it. It outlives the agent.
  std::unique_ptr<device::DeviceSession> device;
  auto place = device::DevicePlace::FromEnvironment();
  if (options.device == "cuda") {
    device::DeviceSession::PrepareEnvironment(place);
    KINTSUGI_ASSIGN_OR_RETURN(device, OpenDevice(options, place, code));
  }
  options.worker.device = device.get();
  options.worker.on_connected = [&options](Generation generation, double milliseconds) {
    Say(options, "groups_connected gen=" + generation.ToString(), milliseconds);
  };
  KINTSUGI_ASSIGN_OR_RETURN(const auto agent_options, AgentOptions::FromEnvironment());
  KINTSUGI_ASSIGN_OR_RETURN(auto agent, Join(agent_options, std::make_shared<StderrLog>(), ReplicaOptionsFor(options)));
  // A spare learns only now which device its rank has.
  if (device && agent->device() >= 0 && agent->device() != place.ordinal) {
    place.ordinal = agent->device();
    KINTSUGI_ASSIGN_OR_RETURN(device, OpenDevice(options, place, code));
    options.worker.device = device.get();
  }
  KINTSUGI_ASSIGN_OR_RETURN(auto worker, Worker::Create(*agent, options.worker, text));
  const Status trained = worker->Run();
  if (!trained.ok() && trained.code() != StatusCode::kEnded) return trained;
  if (trained.ok())
    for (const std::string& sample : worker->samples()) std::cout << "sample:" << Printable(sample) << std::endl;
  return agent->exit_code();
}

}  // namespace

int RunCommand(int argc, char** argv, const device::CodeFactory& code) {
  Options options;
  if (const char* replicas = std::getenv("KINTSUGI_REPLICAS")) options.worker.replicas = std::atoi(replicas);
  CLI::App app{
      "byte_lm: trains a byte-level GPT on text files.\n"
      "Example: kintsugi run --nproc 4 -- byte_lm --steps 200 --tp 2"};
  AddOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  const Result<int> exit_code = Train(options, code);
  if (exit_code.ok()) return *exit_code;
  std::cerr << "byte_lm: " << exit_code.status().ToString() << std::endl;
  return exit_code.status().code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace kintsugi::byte_lm
