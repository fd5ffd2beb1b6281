// StopSignals: SIGINT, SIGTERM, SIGHUP and what else warns of the end, told with how often one has come.
//
// SIGUSR1, SIGUSR2 and SIGXCPU are how batch systems warn before they end a job (Slurm's --signal, limits of processor time).
// A terminal that hangs up asks for the same as an operator: save what there is. A user who starts a run to outlive its
// terminal (nohup) has SIGHUP ignored, and so it stays.
// Threads: one, which runs the io_context.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <functional>
#include <utility>

namespace kintsugi {

class StopSignals {
 public:
  explicit StopSignals(boost::asio::io_context& io) : signals_(io) {}

  // `times`: 1 for the first.
  void Watch(std::function<void(int number, int times)> on_signal) {
    on_signal_ = std::move(on_signal);
    signals_.add(SIGINT);
    for (const int number : {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) signals_.add(number);
    struct sigaction hangup {};
    if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN) signals_.add(SIGHUP);
    Await();
  }

 private:
  void Await() {
    signals_.async_wait([this](const boost::system::error_code& error, int number) {
      if (error) return;
      Await();
      on_signal_(number, ++times_);
    });
  }

  boost::asio::signal_set signals_;
  std::function<void(int, int)> on_signal_;
  int times_ = 0;
};

}  // namespace kintsugi
