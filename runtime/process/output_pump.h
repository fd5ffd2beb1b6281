// OutputPump: reads one output pipe of a process on an event loop and hands out lines. Internal to this folder.
//
// Threads: that of the io_context.
// Ownership: owns the pipe's end; the owner of the pump keeps it alive through
//   shared_ptr while a read is under way, and Close() ends everything.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/process/line_splitter.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

class OutputPump : public std::enable_shared_from_this<OutputPump> {
 public:
  // `on_end` is called once, at the end of the stream or after Finish; the last, unfinished line comes before it.
  OutputPump(boost::asio::io_context& io, UniqueFd pipe, LineSplitter::LineFn on_line, std::function<void()> on_end);

  void Start();

  // Takes what is in the pipe now, at most `bytes_max`, without blocking. The lines go to `on_line` like all others.
  void ReadPending(size_t bytes_max);

  // The process has ended: after `bytes_max` more bytes the stream counts as ended, even if another process holds it
  // open.
  void LimitRest(size_t bytes_max);

  // Ends the stream now: flushes and calls on_end, unless that has happened.
  void Finish();

  // Drops everything without a call.
  void Close();

 private:
  enum class ReadOutcome { kSome, kNothingNow, kEnd };

  void Wait();
  ReadOutcome ReadOnce(size_t bytes_max);

  boost::asio::posix::stream_descriptor pipe_;
  LineSplitter splitter_;
  LineSplitter::LineFn on_line_;
  std::function<void()> on_end_;
  size_t bytes_left_;
  bool ended_ = false;
  std::array<char, 64 * 1024> buffer_;
};

}  // namespace kintsugi
