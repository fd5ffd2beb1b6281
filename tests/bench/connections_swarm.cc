#include "tests/bench/connections_swarm.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <deque>
#include <iostream>

#include "runtime/base/overloaded.h"
#include "runtime/net/client.h"
#include "runtime/wire/codec.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {
namespace {

constexpr char kCut = 'c';
constexpr char kQuit = 'q';
constexpr Duration kBeatSlice = std::chrono::milliseconds(10);
constexpr size_t kReadBufferBytes = 4096;
// Ranks have machines of their own: here they must not take the controller's core.
constexpr int kNiceness = 10;

[[noreturn]] void Die(const std::string& why) {
  std::cerr << "error: the benchmark's ranks: " << why << std::endl;
  std::_Exit(1);
}

// One rank: what an agent without a trainer would say.
class SwarmRank {
 public:
  SwarmRank(boost::asio::io_context& io, Rank rank, uint16_t port, std::shared_ptr<const net::Secret> secret)
      : port_(port), header_{{}, {}, rank, {}} {
    net::ClientOptions options;
    options.self = {kSwarmJob, "agent"};
    options.read_buffer_bytes = kReadBufferBytes;
    net::ClientHandlers handlers;
    handlers.on_open = [this](const net::ConnectionPtr&) { Say(core::JoinRequest{Pid(), "localhost", false}); };
    handlers.on_frame = [this](const net::ConnectionPtr&, std::string_view payload) { OnFrame(payload); };
    handlers.on_close = [this](const net::ConnectionPtr&, const Status&) { Connect(); };
    handlers.on_failed = [](const Status& why) { Die(why.ToString()); };
    auto client = net::Client::Create(io, std::move(options), std::move(secret), std::move(handlers));
    if (!client.ok()) Die(client.status().ToString());
    client_ = std::move(client).value();
    Connect();
  }

  void Beat() {
    if (!joined_) return;
    ++beats_;
    Say(core::Beat{beats_, {beats_, TrainPhase::kForward, Activity::kNone}});
  }
  void Cut() {
    if (const auto connection = client_->connection()) connection->Abort();
  }

 private:
  uint64_t Pid() const { return 1000 + static_cast<uint64_t>(header_.rank.value()); }

  void Connect() {
    const Status begun = client_->Connect("127.0.0.1", port_, SteadyClock::SteadyNow() + std::chrono::seconds(60));
    if (!begun.ok()) Die(begun.ToString());
  }

  void Say(const core::AgentMessage& message) {
    const net::ConnectionPtr connection = client_->connection();
    if (connection) (void)connection->Send(wire::Encode(kSwarmJob, header_, message));
  }

  void OnFrame(std::string_view payload) {
    const auto frame = wire::DecodeFromController(kSwarmJob, payload);
    if (!frame.ok()) Die(frame.status().ToString());
    header_ = frame->header;
    std::visit(Overloaded{
                   [&](const core::JoinReply& reply) {
                     if (!reply.accepted) Die("rank " + header_.rank.ToString() + " was refused: " + reply.text);
                     joined_ = true;
                     core::Ready ready;
                     ready.layouts[0] = {{header_.rank}, 1};
                     Say(ready);
                   },
                   [&](const core::LockOrder&) {
                     Say(core::LockReply{core::GateState::kCommitted, Step(beats_), true});
                   },
                   [&](const core::StopOrder&) {
                     Say(core::Parked{core::GateState::kCommitted, Step(beats_), true});
                   },
                   [&](const core::PhaseOrder& order) { Say(core::PhaseDone{.phase = order.phase}); },
                   [&](const core::ResumeOrder&) { Say(core::Resumed{}); },
                   [&](const core::EndOrder& order) { Die("the run ended: " + order.text); },
                   [](const auto&) {},
               },
               frame->message);
  }

  const uint16_t port_;
  core::Header header_;
  std::unique_ptr<net::Client> client_;
  uint64_t beats_ = 0;
  bool joined_ = false;
};

class Swarm {
 public:
  Swarm(const SwarmOptions& options, const std::shared_ptr<const net::Secret>& secret, int commands)
      : options_(options), timer_(io_), commands_(io_, commands) {
    for (int rank = 0; rank < options.ranks; ++rank)
      ranks_.push_back(std::make_unique<SwarmRank>(io_, Rank(options.first_rank + rank), options.port, secret));
    began_ = SteadyClock::SteadyNow();
    Beat();
    Listen();
  }
  void Run() { io_.run(); }

 private:
  // The ranks take turns, so that their beats are spread evenly over time.
  void Beat() {
    const double elapsed = ToMilliseconds(SteadyClock::SteadyNow() - began_) / 1000;
    const auto due = static_cast<uint64_t>(elapsed * options_.ranks * options_.beats_per_second);
    for (; sent_ < due; ++sent_) ranks_[sent_ % ranks_.size()]->Beat();
    timer_.expires_after(kBeatSlice);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Beat();
    });
  }

  void Listen() {
    commands_.async_read_some(boost::asio::buffer(&command_, 1),
                              [this](const boost::system::error_code& error, size_t) {
                                if (error || command_ != kCut) std::_Exit(0);
                                for (const auto& rank : ranks_) rank->Cut();
                                Listen();
                              });
  }

  const SwarmOptions options_;
  boost::asio::io_context io_{1};
  boost::asio::steady_timer timer_;
  boost::asio::posix::stream_descriptor commands_;
  char command_ = 0;
  std::vector<std::unique_ptr<SwarmRank>> ranks_;
  TimePoint began_;
  uint64_t sent_ = 0;
};

}  // namespace

ConnectionSwarm::ConnectionSwarm(const SwarmOptions& options, std::shared_ptr<const net::Secret> secret) {
  int ends[2];
  if (::pipe(ends) != 0) Need({StatusCode::kResourceExhausted, "no pipe for the benchmark's ranks"});
  pid_ = ::fork();
  if (pid_ < 0) Need({StatusCode::kResourceExhausted, "no process for the benchmark's ranks"});
  if (pid_ == 0) {
    ::close(ends[1]);
    std::signal(SIGPIPE, SIG_IGN);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)!::nice(kNiceness);
    Swarm(options, secret, ends[0]).Run();
    std::_Exit(0);
  }
  ::close(ends[0]);
  commands_ = UniqueFd(ends[1]);
}

ConnectionSwarm::~ConnectionSwarm() {
  // Swarms that were forked later hold this pipe too, so closing it would not be noticed.
  (void)!::write(commands_.get(), &kQuit, 1);
  ::waitpid(pid_, nullptr, 0);
}

void ConnectionSwarm::Cut() {
  if (::write(commands_.get(), &kCut, 1) != 1) Need({StatusCode::kCommFailure, "the benchmark's ranks have ended"});
}

}  // namespace kintsugi::bench
