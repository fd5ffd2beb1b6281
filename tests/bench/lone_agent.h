// LoneAgent: an agent in this process with a real controller beside it, for measuring the agent's calls without a job.
//
// The controller runs on a thread of its own and starts no processes; the one rank joins over loopback as a rank of a
// real job would, with handlers that do nothing and one registered tensor.
// Threads: Run calls `body` on the caller's thread, inside the agent's guard.
// Errors: end the program (Need).
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/agent.h"
#include "runtime/controller/controller.h"

namespace kintsugi::bench {

class LoneAgent final : private ControllerHost {
 public:
  explicit LoneAgent(GateMode gate);
  ~LoneAgent() override;

  // Calls body(first_step) in the training loop; it may take as many steps as it likes.
  void Run(std::function<void(Step first)> body);
  Agent& agent() { return *agent_; }

 private:
  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank, Incarnation, const std::string&) override {}
  void OnTransition(const core::Transition&) override {}
  void OnIncident(const core::IncidentRecord&) override {}
  void OnNotice(Rank, const std::string&) override {}
  void OnEnded(const core::RunEnded&) override {}

  std::vector<float> tensor_;
  boost::asio::io_context io_;
  std::unique_ptr<Controller> controller_;
  std::thread thread_;
  std::unique_ptr<Agent> agent_;
};

}  // namespace kintsugi::bench
