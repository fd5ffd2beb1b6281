// StopSignals: SIGINT and SIGTERM, each told with how often one has come.
//
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
    signals_.add(SIGTERM);
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
