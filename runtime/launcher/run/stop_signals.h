// StopSignals: SIGINT, SIGTERM, SIGHUP and what else warns of the end, told with how often one has come.
//
// A terminal that hangs up asks for the same as an operator: save what there is. A user who starts a run to outlive its
// terminal (nohup) has SIGHUP ignored, and so it stays.
// Threads: one, which runs the io_context.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/warning_signals.h"

namespace kintsugi {

class StopSignals {
 public:
  explicit StopSignals(boost::asio::io_context& io) : signals_(io) {}

  // `further`: what warns beside kWarningSignals, by an operator's word. `times`: 1 for the first.
  void Watch(const std::vector<int>& further, std::function<void(int number, int times)> on_signal) {
    on_signal_ = std::move(on_signal);
    signals_.add(SIGINT);
    for (const int number : kWarningSignals) signals_.add(number);
    for (const int number : further) signals_.add(number);  // one that is there already adds nothing
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
