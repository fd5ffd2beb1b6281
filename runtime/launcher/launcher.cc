#include "runtime/launcher/launcher.h"

#include "runtime/base/check.h"
#include "runtime/launcher/leader/leader.h"
#include "runtime/launcher/leader/node_parts.h"
#include "runtime/launcher/lease/save_lease.h"
#include "runtime/launcher/run/certificate_watch.h"
#include "runtime/launcher/run/late_signals.h"
#include "runtime/launcher/run/stop_signals.h"
#include "runtime/net/event_loop.h"

namespace kintsugi {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(10);

}  // namespace

// The pool of this host's workers, signals and the control socket around one Leader.
class Launcher::Impl {
 public:
  // REQUIRES: options are valid.
  Impl(const LauncherOptions& options, std::shared_ptr<const net::Secret> secret, std::shared_ptr<GenerationLog> log)
      : options_(options),
        secret_(std::move(secret)),
        log_(std::move(log)),
        signals_(io_),
        poll_(io_),
        leader_(io_, {.run = options_}, secret_, &pool_, log_, [this] { io_.stop(); }),
        pool_(io_, leader_.workers(), log_) {}

  Status SetUp() {
    for (const Injection& injection : options_.injections) KINTSUGI_RETURN_IF_ERROR(pool_.Arm(injection).status());
    KINTSUGI_RETURN_IF_ERROR(leader_.Listen());
    if (!options_.policy.save_directory.empty()) {
      KINTSUGI_ASSIGN_OR_RETURN(lease_, SaveLease::Take(options_.policy.save_directory, options_.job, log_));
    }
    WorkerPoolOptions pool = PoolOptionsOf(options_, 0);
    pool.master_address = options_.node_address;
    pool.master_port = FreePort(options_.node_address, options_.ports);
    pool.controller = options_.bind_address + ":" + std::to_string(leader_.port());
    KINTSUGI_RETURN_IF_ERROR(pool_.SetUp(std::move(pool), *secret_));
    if (!options_.run_directory.empty()) {
      KINTSUGI_ASSIGN_OR_RETURN(control_, net::ControlSocket::Listen(
                                              io_, options_.run_directory + "/control.sock",
                                              [this](std::string request, net::ControlSocket::Respond respond) {
                                                leader_.OnRequest(request, std::move(respond));
                                              },
                                              ControlOptions()));
    }
    return Status::Ok();
  }

  RunResult Run(std::function<void(const RunProgress&)> listener) {
    signals_.Watch(options_.signals, [this](int number, int times) { OnSignal(number, times); });
    if (options_.late_signals) options_.late_signals->Begin(options_.signals);
    leader_.OnProgress(std::move(listener));
    leader_.Start();
    Poll();
    const Status ran = net::RunGuarded(io_, *log_);
    if (!ran.ok()) leader_.EndNow("internal error, please report it: " + ran.message());
    pool_.KillAll();
    RunResult result = leader_.TakeResult();
    pool_.Flush();
    return result;
  }

 private:
  void OnSignal(int number, int times) {
    if (options_.late_signals) options_.late_signals->Take();
    if (times > 1) return leader_.EndNow("ended at once by a second " + SignalName(number));
    log_->Write(LogLevel::kWarning,
                LogLine("stop_requested", {{"signal", SignalName(number)},
                                           {"hint", "finishing the step and saving; a second signal ends at once"}}));
    leader_.Stop();
  }

  void Poll() {
    poll_.expires_after(kPollInterval);  // first: what throws below must not end the polling
    poll_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Poll();
    });
    pool_.Poll();
    leader_.Poll();
    certificates_.Poll(SteadyClock::SteadyNow());
    const auto node = [this] {
      return NodeStatus{.job = options_.job,
                        .run_id = run_id_,
                        .address = options_.node_address,
                        .version = options_.version,
                        .leads = true,
                        .hears_leader = true,
                        .term = leader_.term(),
                        .processes = static_cast<int>(pool_.Lives().size()),
                        .certificate_ends = certificates_.ends()};
    };
    Attend(options_.observer.get(), &leader_, node,
           [this](const std::string& request, auto respond) { leader_.OnRequest(request, std::move(respond)); });
  }

  const LauncherOptions& options_;
  const std::string run_id_ =
      options_.job + "/" + std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  const std::shared_ptr<const net::Secret> secret_;
  std::shared_ptr<GenerationLog> log_;
  boost::asio::io_context io_;
  StopSignals signals_;
  boost::asio::steady_timer poll_;
  Leader leader_;
  WorkerPool pool_;
  CertificateWatch certificates_{options_.tls, log_};
  std::unique_ptr<net::ControlSocket> control_;
  std::unique_ptr<SaveLease> lease_;
};

Launcher::Launcher(LauncherOptions options, std::shared_ptr<LogSink> log)
    : options_(std::move(options)), log_(std::make_shared<GenerationLog>(std::move(log))) {}

Launcher::~Launcher() = default;

void Launcher::OnProgress(std::function<void(const RunProgress&)> listener) { listener_ = std::move(listener); }

Result<RunResult> Launcher::Run() {
  KINTSUGI_RETURN_IF_ERROR(Leader::Validate(options_));
  KINTSUGI_ASSIGN_OR_RETURN(const std::shared_ptr<const net::Secret> secret, net::Secret::Generate());
  KINTSUGI_CHECK(!impl_, "a launcher runs once");
  impl_ = std::make_unique<Impl>(options_, secret, log_);
  KINTSUGI_RETURN_IF_ERROR(impl_->SetUp());
  return impl_->Run(std::move(listener_));
}

}  // namespace kintsugi
