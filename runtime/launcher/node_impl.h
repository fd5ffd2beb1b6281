// NodeLauncher::Impl: the pool of this host's workers, the relay that their agents connect to, and the link to node 0.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/launcher/agent_relay.h"
#include "runtime/launcher/node_launcher.h"
#include "runtime/launcher/stop_signals.h"
#include "runtime/launcher/worker_pool.h"
#include "runtime/net/client.h"
#include "runtime/net/control_socket.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

class NodeLauncher::Impl final : public WorkerEvents {
 public:
  Impl(NodeLauncherOptions options, std::shared_ptr<LogSink> log);
  Result<NodeResult> Run();

 private:
  Status SetUp();
  void OnSignal(int number, int times);
  void Poll();
  void StopIfDone();
  void EndNow(int exit_code, const std::string& why);

  // The link.
  void Connect(Duration limit);
  void OnOpen(const net::ConnectionPtr& connection);
  void OnFrame(std::string_view payload);
  void OnClose(const Status& why);
  void OnNoController(const Status& why);
  void OnWelcome(const wire::NodeWelcome& welcome);
  void OnEnd(const wire::NodeEnd& end);
  void Tell(const wire::NodeMessage& message);
  void TellPages();

  // WorkerEvents.
  void OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) override;
  void OnPage(Rank rank, Incarnation incarnation, const PageView& page) override;
  void OnReport(Rank rank, const StepReport& report) override;
  void OnFired(const Injection& injection, TimePoint at) override;
  void OnExited(Rank rank, Incarnation incarnation, const std::string& cause, TimePoint at,
                std::optional<TimePoint> since) override;
  void OnSpares(int waiting) override { Tell(wire::NodeSpares{waiting}); }
  void OnIdle() override { StopIfDone(); }

  void OnRequest(const std::string& request, net::ControlSocket::Respond respond);

  int LocalRanks() const { return options_.run.policy.world_size / options_.run.nodes; }

  NodeLauncherOptions options_;
  std::shared_ptr<LogSink> log_;
  boost::asio::io_context io_;
  StopSignals signals_;
  boost::asio::steady_timer poll_;
  boost::asio::steady_timer leave_;
  WorkerPool pool_;
  AgentRelay relay_;
  std::unique_ptr<net::Client> client_;
  net::ConnectionPtr link_;  // welcomed
  Term term_;                // of the newest controller that welcomed us: an older one is not obeyed
  std::unique_ptr<net::ControlSocket> control_;
  bool set_up_ = false;  // the pool knows what a welcome says
  Duration beat_ = std::chrono::milliseconds(250);
  TimePoint told_pages_;
  std::map<Rank, wire::Page> pages_;  // since they were last told
  Status failed_;
  std::optional<NodeResult> ended_;
};

}  // namespace kintsugi
