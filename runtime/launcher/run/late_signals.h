// LateSignals: what asks a launcher to end when its run is over and it is not: while it writes reports, waits for a
// reader of the run's end or for the next start. The run hears the same signals until its own loop is over, so those
// that it took are told here, and what came beyond them came late.
//
// Threads: one.
#pragma once

#include <boost/asio/io_context.hpp>
#include <optional>
#include <vector>

#include "runtime/launcher/run/stop_signals.h"

namespace kintsugi {

class LateSignals {
 public:
  // By a run, as soon as it hears signals itself. Until then they act as they do on any process.
  void Begin(const std::vector<int>& further) {
    taken_ = heard_ = 0;
    signals_.emplace(io_);
    signals_->Watch(further, [this](int, int times) { heard_ = times; });
  }
  // By a run, of each that it hears.
  void Take() { ++taken_; }
  bool came() {
    io_.restart();
    io_.poll();
    return heard_ > taken_;
  }
  // They act as on any process again.
  void End() { signals_.reset(); }

 private:
  boost::asio::io_context io_;
  std::optional<StopSignals> signals_;
  int taken_ = 0, heard_ = 0;
};

}  // namespace kintsugi
