// World: a real controller on a thread, and a real agent with a toy trainer per rank, all in one process.
//
// Threads: for the test's thread. What the controller says is recorded and read under a lock.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/controller/controller.h"
#include "tests/inproc/toy_trainer.h"
#include "tests/inproc/wire_cutter.h"

namespace kintsugi::inproc {

struct WorldOptions {
  int ranks = 4;
  int replicas = 2;
  uint64_t steps = 6;
  GateMode gate = GateMode::kTrainer;
  bool mirrored = true;
  int max_respawns = 0;  // as far as ranks know
  std::map<int, int> page_fds;  // pages that no launcher reads: the rank's first process gives no sign of life
  core::Policy policy;  // world_size and can_spawn are set by World
  Duration device_limit = std::chrono::seconds(60);
  Duration loss_timeout = std::chrono::seconds(2);
  std::map<int, Tweaks> tweaks;  // by rank; -1: of all others

  WorldOptions() {
    // Long enough for a machine that is busy with other tests.
    policy.silence = std::chrono::seconds(2);
    policy.step_timeout = std::chrono::seconds(30);
    policy.join_timeout = std::chrono::seconds(60);
  }
};

class World final : public ControllerHost {
 public:
  explicit World(WorldOptions options = {});
  ~World() override;

  // Starts every rank and waits until all have ended.
  void RunAll();
  void StartRank(int rank);
  void StartAll();
  void WaitAll();
  // The rank's process is as if killed: its wire is cut for good.
  void Kill(int rank);
  // A new process of the rank joins.
  void Replace(int rank) { StartRank(rank); }
  void Interrupt(int rank);
  // The controller is gone: nothing listens any more.
  void StopController();
  void Feed(core::ControllerEvent event);
  // Runs on the controller's thread, and waits for it.
  template <typename F>
  auto OnController(F f) -> decltype(f());

  AgentOptions OptionsOf(int rank, uint16_t port);
  Script& script() { return script_; }
  const WorldOptions& options() const { return options_; }
  Controller& controller() { return *controller_; }  // inside OnController
  uint16_t controller_port() const { return port_; }
  // Trainers that were ever started, in order; of the newest process of a rank.
  ToyTrainer& trainer(int rank) { return *newest_.at(rank); }
  const std::vector<std::unique_ptr<ToyTrainer>>& trainers() const { return trainers_; }
  Status result(int rank) { return newest_.at(rank)->Wait(); }

  std::vector<core::IncidentRecord> incidents() const;
  std::vector<core::Transition> transitions() const;
  std::vector<std::string> notices() const;
  // What the controller did so far, a line each: what a failed wait prints.
  std::string Story() const;
  // Waits for it, at most two minutes.
  std::optional<core::RunEnded> ended() const;
  bool AwaitPhase(core::Phase phase) const;
  bool AwaitIncidents(size_t count) const;

  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank, Incarnation, const std::string&) override {}
  void OnTransition(const core::Transition& transition) override;
  void OnIncident(const core::IncidentRecord& record) override;
  void OnNotice(Rank rank, const std::string& text) override;
  void OnEnded(const core::RunEnded& ended) override;

 private:
  WorldOptions options_;
  Hub hub_;
  Script script_;
  std::shared_ptr<const net::Secret> secret_;
  int secret_fd_ = -1;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::unique_ptr<Controller> controller_;
  uint16_t port_ = 0;
  std::vector<std::unique_ptr<WireCutter>> wires_;  // io thread
  std::map<int, WireCutter*> wire_of_;
  std::vector<std::unique_ptr<ToyTrainer>> trainers_;
  std::map<int, ToyTrainer*> newest_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<core::IncidentRecord> incidents_;
  std::vector<core::Transition> transitions_;
  std::vector<std::string> notices_;
  std::optional<core::RunEnded> ended_;
  std::thread thread_;
};

template <typename F>
auto World::OnController(F f) -> decltype(f()) {
  std::promise<decltype(f())> done;
  boost::asio::post(io_, [&] {
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      done.set_value();
    } else {
      done.set_value(f());
    }
  });
  return done.get_future().get();
}

}  // namespace kintsugi::inproc
