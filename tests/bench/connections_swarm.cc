#include "tests/bench/connections_swarm.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <functional>
#include <iostream>
#include <map>
#include <set>

#include "runtime/base/overloaded.h"
#include "runtime/net/client.h"
#include "runtime/net/handshake.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/node_codec.h"
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

// A connection that comes back whenever it is lost.
class SwarmLink {
 public:
  SwarmLink(boost::asio::io_context& io, std::string_view role, uint16_t port,
            std::shared_ptr<const net::Secret> secret, std::function<void()> on_open,
            std::function<void(std::string_view)> on_frame)
      : port_(port) {
    net::ClientOptions options;
    options.self = {kSwarmJob, std::string(role)};
    options.read_buffer_bytes = kReadBufferBytes;
    net::ClientHandlers handlers;
    handlers.on_open = [on_open = std::move(on_open)](const net::ConnectionPtr&) { on_open(); };
    handlers.on_frame = [on_frame = std::move(on_frame)](const net::ConnectionPtr&, std::string_view payload) {
      on_frame(payload);
    };
    handlers.on_close = [this](const net::ConnectionPtr&, const Status&) { Connect(); };
    handlers.on_failed = [](const Status& why) { Die(why.ToString()); };
    auto client = net::Client::Create(io, std::move(options), std::move(secret), std::move(handlers));
    if (!client.ok()) Die(client.status().ToString());
    client_ = std::move(client).value();
    Connect();
  }

  void Send(std::string frame) {
    const net::ConnectionPtr connection = client_->connection();
    if (connection) (void)connection->Send(std::move(frame));
  }
  void Cut() {
    if (const auto connection = client_->connection()) connection->Abort();
  }

 private:
  void Connect() {
    const Status begun = client_->Connect("127.0.0.1", port_, SteadyClock::SteadyNow() + std::chrono::seconds(60));
    if (!begun.ok()) Die(begun.ToString());
  }

  const uint16_t port_;
  std::unique_ptr<net::Client> client_;
};

// One rank: what an agent without a trainer would say, wherever its frames go.
class SwarmAgent {
 public:
  SwarmAgent(Rank rank, bool watched, std::function<void(std::string)> send)
      : watched_(watched), send_(std::move(send)), header_{{}, {}, rank, {}} {}

  void Join() { Say(core::JoinRequest{1000 + static_cast<uint64_t>(header_.rank.value()), "localhost", watched_}); }
  // A process of this incarnation has begun.
  void Begin(Incarnation incarnation) { header_.incarnation = incarnation; }
  void Beat() {
    if (joined_) Say(core::Beat{++beats_, {beats_, TrainPhase::kForward, Activity::kNone}});
  }
  wire::Page Page() { return {rank(), header_.incarnation, ++beats_, 0, PackProgress(1, TrainPhase::kForward), {}}; }
  Rank rank() const { return header_.rank; }
  Incarnation incarnation() const { return header_.incarnation; }

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

 private:
  void Say(const core::AgentMessage& message) { send_(wire::Encode(kSwarmJob, header_, message)); }

  const bool watched_;
  const std::function<void(std::string)> send_;
  core::Header header_;
  uint64_t beats_ = 0;
  bool joined_ = false;
};

// One that has a connection: a rank, or a node with its ranks.
class SwarmMember {
 public:
  virtual ~SwarmMember() = default;
  virtual void Beat() = 0;
  virtual void Cut() = 0;
};

class SwarmRank final : public SwarmMember {
 public:
  SwarmRank(boost::asio::io_context& io, Rank rank, uint16_t port, std::shared_ptr<const net::Secret> secret)
      : agent_(rank, false, [this](std::string frame) { link_.Send(std::move(frame)); }),
        link_(
            io, net::kAgentRole, port, std::move(secret), [this] { agent_.Join(); },
            [this](std::string_view payload) { agent_.OnFrame(payload); }) {}
  void Beat() override { agent_.Beat(); }
  void Cut() override { link_.Cut(); }

 private:
  SwarmAgent agent_;
  SwarmLink link_;
};

// A launcher whose processes begin at once. An agent's channel has the number of its rank.
class SwarmNode final : public SwarmMember {
 public:
  SwarmNode(boost::asio::io_context& io, int node, const SwarmOptions& options,
            std::shared_ptr<const net::Secret> secret)
      : hello_{node, options.nodes, options.ranks_per_node, "127.0.0.1", {}},
        link_(
            io, net::kLauncherRole, options.port, std::move(secret), [this] { OnOpen(); },
            [this](std::string_view payload) { OnFrame(payload); }) {
    for (int r = node * options.ranks_per_node; r < (node + 1) * options.ranks_per_node; ++r)
      agents_.emplace(r, SwarmAgent(Rank(r), true, [this, r](std::string frame) {
                        Tell(wire::FromAgentChannel{static_cast<uint64_t>(r) + channels_, std::move(frame)});
                      }));
  }
  void Beat() override {
    wire::Pages pages;
    for (auto& [rank, agent] : agents_)
      if (begun_.count(rank)) pages.pages.push_back(agent.Page());
    if (!pages.pages.empty()) Tell(pages);
  }
  void Cut() override { link_.Cut(); }

 private:
  void OnOpen() {
    hello_.lives.clear();
    for (auto& [rank, agent] : agents_)
      if (begun_.count(rank)) hello_.lives.push_back({agent.rank(), agent.incarnation(), {}});
    Tell(hello_);
  }

  void OnFrame(std::string_view payload) {
    const auto frame = wire::DecodeToNode(kSwarmJob, payload);
    if (!frame.ok()) Die(frame.status().ToString());
    term_ = frame->term;
    std::visit(Overloaded{
                   [&](const wire::NodeWelcome& welcome) {
                     if (!welcome.accepted) Die("a node was refused: " + welcome.text);
                     channels_ += kChannelsPerConnection;  // its agents open new ones
                     for (auto& [rank, agent] : agents_)
                       if (begun_.count(rank)) agent.Join();
                   },
                   [&](const wire::SpawnWorker& spawn) {
                     SwarmAgent& agent = agents_.at(spawn.rank.value());
                     agent.Begin(spawn.incarnation);
                     begun_.insert(spawn.rank.value());
                     Tell(wire::WorkerStarting{{spawn.rank, spawn.incarnation, {}}});
                     agent.Join();
                   },
                   [&](const wire::ToAgentChannel& m) {
                     if (m.channel >= channels_) agents_.at(static_cast<int>(m.channel - channels_)).OnFrame(m.frame);
                   },
                   [&](const wire::KillWorker& kill) { Die("a rank was given up: " + kill.reason); },
                   [&](const wire::NodeEnd& end) { Die("the run ended: " + end.text); },
                   [](const auto&) {},
               },
               frame->order);
  }
  void Tell(const wire::NodeMessage& message) { link_.Send(wire::Encode(kSwarmJob, term_, message)); }

  static constexpr uint64_t kChannelsPerConnection = 1 << 20;
  wire::NodeHello hello_;
  Term term_;
  uint64_t channels_ = 0;  // the number of rank 0's channel
  std::map<int, SwarmAgent> agents_;
  std::set<int> begun_;
  SwarmLink link_;
};

class Swarm {
 public:
  Swarm(const SwarmOptions& options, const std::shared_ptr<const net::Secret>& secret, int commands)
      : options_(options), timer_(io_), commands_(io_, commands) {
    for (int rank = 0; rank < options.ranks && options.ranks_per_node == 0; ++rank)
      members_.push_back(std::make_unique<SwarmRank>(io_, Rank(options.first_rank + rank), options.port, secret));
    for (int rank = 0; rank < options.ranks && options.ranks_per_node > 0; rank += options.ranks_per_node)
      members_.push_back(
          std::make_unique<SwarmNode>(io_, (options.first_rank + rank) / options.ranks_per_node, options, secret));
    began_ = SteadyClock::SteadyNow();
    Beat();
    Listen();
  }
  void Run() { io_.run(); }

 private:
  // They take turns, so that their beats are spread evenly over time.
  void Beat() {
    const double elapsed = ToMilliseconds(SteadyClock::SteadyNow() - began_) / 1000;
    const auto due = static_cast<uint64_t>(elapsed * static_cast<double>(members_.size()) * options_.beats_per_second);
    for (; sent_ < due; ++sent_) members_[sent_ % members_.size()]->Beat();
    timer_.expires_after(kBeatSlice);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Beat();
    });
  }

  void Listen() {
    commands_.async_read_some(boost::asio::buffer(&command_, 1),
                              [this](const boost::system::error_code& error, size_t) {
                                if (error || command_ != kCut) std::_Exit(0);
                                for (const auto& member : members_) member->Cut();
                                Listen();
                              });
  }

  const SwarmOptions options_;
  boost::asio::io_context io_{1};
  boost::asio::steady_timer timer_;
  boost::asio::posix::stream_descriptor commands_;
  char command_ = 0;
  std::vector<std::unique_ptr<SwarmMember>> members_;
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
