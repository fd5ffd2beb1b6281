// The agent's own thread: connection, beat, core.
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <csignal>

#include "runtime/agent/impl.h"
#include "runtime/base/overloaded.h"
#include "runtime/core/device_commit.h"
#include "runtime/core/hang_detector.h"
#include "runtime/process/spare_channel.h"
#include "runtime/wire/codec.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;

constexpr Duration kBeatInterval = std::chrono::milliseconds(50);

}  // namespace

Agent::Impl::Impl(const AgentOptions& options, std::shared_ptr<LogSink> log)
    : options_(options),
      log_(std::move(log)),
      keeper_(registry_, log_),
      store_([this](Generation generation, core::AgentMessage message) {
        boost::asio::post(io_, [this, generation, sent = std::move(message)] { Send(generation, sent); });
      }),
      work_(boost::asio::make_work_guard(io_)),
      beat_timer_(io_),
      stop_timer_(io_) {}

Agent::Impl::~Impl() {
  if (!thread_.joinable()) return;
  boost::asio::post(io_, [this] {
    ended_ = true;
    beat_timer_.cancel();
    stop_timer_.cancel();
    if (client_) client_->Stop();
    work_.reset();
    io_.stop();
  });
  thread_.join();
  if (snapshots_) snapshots_->Stop();
}

Status Agent::Impl::Start() {
  KINTSUGI_RETURN_IF_ERROR(options_.Validate());
  KINTSUGI_ASSIGN_OR_RETURN(secret_, net::Secret::FromFd(options_.secret_fd));
  Result<SharedPage> page = options_.page_fd >= 0 ? SharedPage::Open(options_.page_fd) : SharedPage::CreateLocal();
  if (!page.ok()) return page.status().Annotate("the launcher's liveness page");
  page_.emplace(std::move(page).value());
  // Nothing passes a gate before the first release.
  word().store(GateWord::Pack(GateState::kCommitted, 0) | GateWord::kLockBit, std::memory_order_release);
  report_writer_.emplace(words().reports);
  if (options_.page_fd < 0) report_reader_.emplace(words().reports);
  KINTSUGI_RETURN_IF_ERROR(PrepareClient());
  StartThread();
  if (options_.spare_fd >= 0) KINTSUGI_RETURN_IF_ERROR(TakePlace());
  boost::asio::post(io_, [this] { Connect(); });
  return AwaitJoined();
}

Status Agent::Impl::PrepareClient() {
  net::ClientOptions client_options;
  client_options.self = {options_.job, std::string(net::kAgentRole)};
  KINTSUGI_ASSIGN_OR_RETURN(client_options.tls,
                            net::TlsContext::LoadIfAny({options_.tls_certificate, options_.tls_key, options_.tls_ca}));
  net::ClientHandlers handlers;
  handlers.on_open = [this](const net::ConnectionPtr& connection) { OnOpen(connection); };
  handlers.on_frame = [this](const net::ConnectionPtr&, std::string_view payload) { OnFrame(payload); };
  handlers.on_close = [this](const net::ConnectionPtr&, const Status& why) { OnDisconnect(why); };
  handlers.on_failed = [this](const Status& why) { OnNoController(why); };
  KINTSUGI_ASSIGN_OR_RETURN(client_, net::Client::Create(io_, client_options, secret_, std::move(handlers)));
  return Status::Ok();
}

void Agent::Impl::StartThread() {
  // The host's signals stay with the host's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { ThreadMain(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  boost::asio::post(io_, [this] { OnBeat(); });
}

// The thread beats already: that is how the launcher sees that this spare is warm. It looks at nothing that changes
// here before it is told to connect.
Status Agent::Impl::TakePlace() {
  (void)secret_->Sign("");  // libcrypto sets itself up at its first use: some milliseconds
  KINTSUGI_ASSIGN_OR_RETURN(const Place place, AwaitPlace(options_.spare_fd));
  options_.rank = place.rank;
  options_.incarnation = place.incarnation;
  close(std::exchange(options_.spare_fd, -1));
  return options_.Validate();
}

Status Agent::Impl::AwaitJoined() {
  MutexLock lock(mutex_);
  if (!changed_.WaitFor(lock, options_.join_timeout + std::chrono::seconds(1),
                        [&]() KINTSUGI_REQUIRES(mutex_) { return joined_.has_value(); }))
    return {StatusCode::kDeadlineExceeded, "the controller at " + options_.controller_host + ":" +
                                               std::to_string(options_.controller_port) + " did not answer the join"};
  return joined_->Annotate("rank " + options_.rank.ToString() + " could not join");
}

void Agent::Impl::ThreadMain() {
  prctl(PR_SET_NAME, "kintsugi-agent");
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& e) {
      log_->Write(LogLevel::kError, LogLine("agent_failed", {{"rank", options_.rank.ToString()}, {"what", e.what()}}));
      DoEnd(1, std::string("the agent failed: ") + e.what());
    }
  }
}

void Agent::Impl::Connect() {
  const Duration limit = core_ ? options_.controller_loss_timeout : options_.join_timeout;
  const Status begun =
      client_->Connect(options_.controller_host, options_.controller_port, SteadyClock::SteadyNow() + limit);
  if (!begun.ok()) OnNoController(begun);
}

void Agent::Impl::OnDisconnect(const Status& why) {
  connection_.reset();
  if (ended_) return;
  {
    const MutexLock lock(mutex_);
    if (joined_ && !joined_->ok()) return;  // refused: whoever called Join has given up
  }
  log_->Write(LogLevel::kWarning,
              LogLine("controller_lost", {{"rank", options_.rank.ToString()}, {"why", why.message()}}));
  Connect();
}

void Agent::Impl::OnNoController(const Status& why) {
  if (ended_) return;
  {
    const MutexLock lock(mutex_);
    if (!joined_) {
      joined_ = why;
      changed_.NotifyAll();
      return;
    }
  }
  DoEnd(1, "no controller: " + why.message());
}

void Agent::Impl::OnOpen(const net::ConnectionPtr& connection) {
  connection_ = connection;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const core::Header header{core_ ? core_->term() : Term(), core_ ? core_->generation() : Generation(), options_.rank,
                            options_.incarnation};
  const core::JoinRequest join{static_cast<uint64_t>(getpid()), host, options_.page_fd >= 0,
                               core_ ? core_->standing() : core::Standing::kNew, core_.has_value()};
  const Status sent = connection->Send(wire::Encode(options_.job, header, core::AgentMessage(join)));
  if (!sent.ok()) connection->Abort();
}

void Agent::Impl::OnFrame(std::string_view payload) {
  Result<wire::ControllerFrame> frame = wire::DecodeFromController(options_.job, payload);
  if (!frame.ok()) {
    log_->Write(LogLevel::kWarning, LogLine("frame_refused", {{"why", frame.status().message()}}));
    return;
  }
  if (const auto* reply = std::get_if<core::JoinReply>(&frame->message)) return OnJoinReply(frame->header, *reply);
  if (core_) Step_(core::FromController{frame->header, std::move(frame->message)});
}

void Agent::Impl::OnJoinReply(const core::Header& header, const core::JoinReply& reply) {
  if (core_) {
    // A controller that was replaced and does not know it: the one that replaced it will be found.
    if (header.term < core_->term()) return connection_->Abort();
    if (reply.accepted) {
      Step_(core::Connected{header.term});
      return store_.SayAgain(core_->generation());
    }
    log_->Write(LogLevel::kWarning, LogLine("refused", {{"rank", options_.rank.ToString()}, {"why", reply.text}}));
    return DoEnd(1, "the controller refuses this rank: " + reply.text);
  }
  const MutexLock lock(mutex_);
  if (reply.accepted) {
    options_.incarnation = header.incarnation;
    join_ = reply;
    joined_generation_ = header.generation;
    core_.emplace(options_.rank, header.incarnation, header.term, header.generation, reply.replacement);
    joined_ = Status::Ok();
  } else {
    joined_ = Status(StatusCode::kFailedPrecondition, reply.text);
  }
  changed_.NotifyAll();
}

void Agent::Impl::OnBeat() {
  const uint64_t count = words().beat.fetch_add(1, std::memory_order_relaxed) + 1;
  words().beat_ns.store(static_cast<uint64_t>(SteadyClock::SteadyNow().nanoseconds()), std::memory_order_relaxed);
  if (report_reader_ && core_ && connection_) {
    const uint64_t progress = words().progress.load(std::memory_order_relaxed);
    Send(core_->generation(), core::Beat{count, core::PlaceOf(progress, Word())});
  }
  beat_timer_.expires_after(kBeatInterval);
  beat_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !ended_) OnBeat();
  });
}

void Agent::Impl::ForwardReports() {
  const net::ConnectionPtr connection = connection_;
  if (!report_reader_ || !connection || !core_) return;
  const core::Header header{core_->term(), core_->generation(), options_.rank, options_.incarnation};
  report_reader_->Read([&](const StepReport& report) {
    const wire::RankReport message{report.step, report.loss, {report.samples.begin(), report.samples.end()}};
    (void)connection->Send(wire::Encode(options_.job, header, message));
  });
}

void Agent::Impl::Step_(const core::AgentEvent& event) {
  for (const core::AgentAction& action : core_->Step(event)) Act(action);
}

void Agent::Impl::Post(core::AgentEvent event) {
  boost::asio::post(io_, [this, event = std::move(event)] { Step_(event); });
}

void Agent::Impl::Send(Generation generation, const core::AgentMessage& message) {
  if (!connection_) return;  // the controller learns what it needs when the agent joins again
  ForwardReports();          // first: who hears that a step is done has what was reported of it
  const core::Header header{core_->term(), generation, options_.rank, options_.incarnation};
  const Status sent = connection_->Send(wire::Encode(options_.job, header, message));
  if (!sent.ok()) log_->Write(LogLevel::kWarning, LogLine("send_failed", {{"why", sent.message()}}));
}

void Agent::Impl::Act(const core::AgentAction& action) {
  const auto deliver = [this](auto&& change) {
    {
      const MutexLock lock(mutex_);
      change();
    }
    changed_.NotifyAll();
  };
  std::visit(
      Overloaded{
          [&](const core::SendMessage& a) { Send(a.generation, a.message); },
          [&](const core::LockGate&) { LockGate(); },
          [&](const core::Interrupt& a) { DoInterrupt(a.verdict); },
          [&](const core::RunOnTrainer& a) { deliver([&]() KINTSUGI_REQUIRES(mutex_) { order_ = a; }); },
          [&](const core::CancelHandler&) { OnCancelHandler(); },
          [&](const core::SetCommitted& a) {
            word().store(GateWord::Pack(GateState::kCommitted, a.step.value()) | GateWord::kLockBit);
          },
          [&](const core::ReleaseTrainer& a) {
            deliver([&]() KINTSUGI_REQUIRES(mutex_) {
              verdict_.reset();
              gate_open_.reset();
              release_ = {a.generation, a.step};
            });
          },
          [&](const core::ContinueTrainer&) { deliver([&]() KINTSUGI_REQUIRES(mutex_) { continue_ = true; }); },
          [&](const core::StorePause& a) {
            pause_at_.store(a.step.value(), std::memory_order_seq_cst);
            Step_(core::PauseStored{Step(UnpackProgress(words().progress.load(std::memory_order_seq_cst)).step)});
          },
          [&](const core::OpenGate& a) { deliver([&]() KINTSUGI_REQUIRES(mutex_) { gate_open_ = a.step; }); },
          [&](const core::StoreAnswered& a) { store_.OnAnswered(a.reply); },
          [&](const core::ArmInjection& a) { Arm(a.injection); },
          [&](const core::EndTrainer& a) { DoEnd(a.exit_code, a.text); },
          [&](const core::ArmSnapshot& a) { ArmSnapshot(a); },
      },
      action);
}

void Agent::Impl::OnCancelHandler() {
  std::shared_ptr<CancelToken> cancel;
  std::optional<core::RunOnTrainer> dropped;
  {
    const MutexLock lock(mutex_);
    cancel = cancel_;
    dropped = std::exchange(order_, std::nullopt);
  }
  changed_.NotifyAll();
  store_.CancelWaits();
  if (cancel) cancel->Cancel();
  CallStop(stop_order_.stop_limit);
  if (dropped)  // the trainer's thread had not taken it yet
    Post(core::HandlerDone{dropped->generation, {dropped->order.phase, StatusCode::kCancelled, "superseded", 0, {}}});
}

void Agent::Impl::LockGate() {
  GateWord before;
  std::optional<Release> dropped;
  {
    // A verdict or a release of an earlier attempt that the trainer has not taken yet is void: it takes both under this
    // mutex.
    const MutexLock lock(mutex_);
    verdict_.reset();
    dropped = std::exchange(release_, std::nullopt);
    before = GateWord::Unpack(word().fetch_or(GateWord::kLockBit, std::memory_order_acq_rel));
    before = core::WithDevice(before, update_fence_.load(std::memory_order_acquire) != nullptr);
  }
  changed_.NotifyAll();
  AbortSnapshot();
  if (dropped) Step_(core::TrainerParked{core::TrainerParked::Outcome::kInterrupted, before, {}});
  Step_(core::GateLocked{before});
}

void Agent::Impl::DoInterrupt(const core::StopOrder& order) {
  {
    const MutexLock lock(mutex_);
    verdict_ = order;
  }
  changed_.NotifyAll();
  stop_order_ = order;
  CallStop(order.stop_limit);
}

void Agent::Impl::DoEnd(int exit_code, const std::string& text) {
  if (ended_.exchange(true)) return;
  std::shared_ptr<CancelToken> cancel;
  {
    const MutexLock lock(mutex_);
    ForwardReports();
    end_ = End{exit_code, text};
    cancel = cancel_;
    word().fetch_or(GateWord::kLockBit);
    if (!joined_) joined_ = Status(StatusCode::kEnded, text);
  }
  changed_.NotifyAll();
  store_.End();
  if (cancel) cancel->Cancel();
  AbortSnapshot();
  stop_order_.fault_ranks.clear();
  CallStop(stop_order_.stop_limit);
}

void Agent::Impl::Arm(const std::string& injection) {
  const size_t space = injection.find(' ');
  Result<Injection> parsed = ParseInjection(space == std::string::npos ? "" : injection.substr(space + 1));
  if (!parsed.ok() || parsed->rank != options_.rank) return;
  const MutexLock lock(mutex_);
  armed_.emplace_back(static_cast<uint32_t>(std::strtoul(injection.c_str(), nullptr, 10)), std::move(parsed).value());
  any_armed_ = true;
}

}  // namespace kintsugi
