// WholeNode: the parts of one node's launcher, the real ones, wired as NodeLauncher wires them, and a leader that says what
// the test wants, on a socket of this host.
//
// Threads: one, the test's.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/launcher/leader/node_parts.h"
#include "runtime/launcher/node/node_control.h"
#include "runtime/launcher/node/node_elector.h"
#include "runtime/launcher/node/node_ending.h"
#include "runtime/net/server.h"
#include "tests/support/temporary_folder.h"

namespace kintsugi {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

struct LogOfANode final : LogSink {
  void Write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

// Hears nodes, and tells them what the test says.
class SaidLeader {
 public:
  SaidLeader(boost::asio::io_context& io, std::shared_ptr<const net::Secret> secret, uint16_t port = 0) {
    net::ServerOptions options;
    options.self = {"job", std::string(net::kControllerRole)};
    options.port = port;
    net::ServerHandlers handlers;
    handlers.on_open = [this](const net::ConnectionPtr& connection) { node_ = connection; };
    handlers.on_frame = [this](const net::ConnectionPtr&, std::string_view payload) {
      const Result<wire::NodeFrame> frame = wire::DecodeFromNode("job", payload);
      ASSERT_TRUE(frame.ok()) << frame.status().ToString();
      heard.push_back(frame->message);
    };
    handlers.on_close = [this](const net::ConnectionPtr& connection, const Status&) {
      if (connection == node_) node_.reset();
      ++closed;
    };
    handlers.on_refused = [](const std::string&, net::CloseReason, const Status&) {};
    server_ = net::Server::Listen(io, options, std::move(secret), handlers).value();
  }
  uint16_t port() const { return server_->port(); }
  bool has_node() const { return node_ != nullptr; }
  void Tell(Term term, const wire::NodeOrder& order) {
    ASSERT_TRUE(node_->Send(wire::Encode("job", term, order)).ok());
  }
  template <typename Message>
  std::vector<Message> All() const {
    std::vector<Message> all;
    for (const wire::NodeMessage& message : heard)
      if (const auto* one = std::get_if<Message>(&message)) all.push_back(*one);
    return all;
  }

  std::vector<wire::NodeMessage> heard;
  int closed = 0;

 private:
  net::ConnectionPtr node_;
  std::unique_ptr<net::Server> server_;
};

// All that a launcher of node 1 of two is made of; two ranks each.
class PartsOfANode : private LineEvents, private NodeOperators {
 public:
  PartsOfANode(boost::asio::io_context& loop, NodeLauncherOptions options, std::shared_ptr<LogSink> to)
      : io(loop), state(std::move(options), std::make_shared<GenerationLog>(std::move(to))) {}

  std::vector<wire::NodeOrder> orders;  // that were carried out
  int new_terms = 0, asked_to_stop = 0;
  std::string lost;               // what callers heard when the leader was lost
  std::string answers_as_leader;  // empty: this node does not lead

  boost::asio::io_context& io;
  NodeState state;
  WorkerPool pool{io, reporter, state.log};
  ElectionTransport transport{io, state.log};
  RetainedReports retained;
  RunHistory history;
  LeaderConnection to_leader{io, state, *this, ending};
  LocalBlock block{state, pool};
  NodeReporter reporter{state, pool, to_leader, block, retained, ending};
  NodeControl control{state, pool, to_leader, block, *this};
  NodeSplits splits{io, state, [this](TimePoint until) { local_leader.OnWord(until); }};
  LocalLeader local_leader{io, state, transport, to_leader, {block, retained, history}, splits, ending};
  NodeEnding ending{io, state, pool, to_leader, retained, reporter, local_leader};
  NodeElector elector{state, transport, to_leader, block, reporter, splits, local_leader, ending};

 private:
  wire::NodeHello Hello() override { return reporter.Hello(7); }
  void OnNewTerm() override {
    ++new_terms;
    retained.BeginToRetell();
  }
  void OnOrder(const wire::NodeOrder& order) override { orders.push_back(order); }
  void OnLineLost(const std::string& why) override {
    lost = why;
    control.OnLineLost(why);
  }
  void AskToStop() override { ++asked_to_stop; }
  bool AnswerAsLeader(const std::string&, const net::ControlSocket::Respond& respond) override {
    if (answers_as_leader.empty()) return false;
    respond(answers_as_leader);
    return true;
  }
};

class WholeNode : public ::testing::Test {
 protected:
  static constexpr Term kTerm{2, 1};
  const wire::NodeWelcome welcomed{.beat = 100ms};

  NodeLauncherOptions Options(int node_rank) {
    NodeLauncherOptions options;
    options.run.job = "job";
    options.run.nodes = 2;
    options.run.policy.world_size = 4;
    options.run.policy.grace = 1h;
    options.run.secret = secret;
    options.node_rank = node_rank;
    options.rendezvous_host = "127.0.0.1";
    return options;
  }
  PartsOfANode& Make(int node_rank = 1) { return Make(Options(node_rank)); }
  PartsOfANode& Make(NodeLauncherOptions options) {
    node = std::make_unique<PartsOfANode>(io, std::move(options), log);
    return *node;
  }
  // Until it is so.
  void Run(const std::function<bool()>& done) {
    for (int turn = 0; turn < 6000 && !done(); ++turn) {
      io.restart();
      io.run_for(5ms);
    }
    ASSERT_TRUE(done()) << "it does not come about";
  }
  // Until the launcher's loop is over, as its own Run waits for it.
  void AwaitEnd() {
    io.restart();
    io.run_for(60s);
    ASSERT_TRUE(io.stopped());
    ASSERT_TRUE(node->state.ended.has_value());
  }
  // The node follows this leader, and was welcomed by it.
  void Follow(SaidLeader& leader, Term term = kTerm) {
    node->to_leader.Follow(term, {{0, "127.0.0.1", leader.port()}, false, {}});
    Run([&] { return !leader.All<wire::NodeHello>().empty(); });
    leader.Tell(term, welcomed);
    Run([&] { return node->to_leader.connected(); });
    node->state.election.Follow(term.number);
    node->state.set_up = true;
    ASSERT_FALSE(node->state.election.leaderless());
  }
  int Logged(const std::string& text) const {
    return static_cast<int>(std::count_if(log->lines.begin(), log->lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    }));
  }

  boost::asio::io_context io;
  std::shared_ptr<LogOfANode> log = std::make_shared<LogOfANode>();
  std::shared_ptr<const net::Secret> secret = net::Secret::Generate().value();
  std::unique_ptr<PartsOfANode> node;
};

}  // namespace kintsugi
