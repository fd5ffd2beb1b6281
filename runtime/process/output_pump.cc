#include "runtime/process/output_pump.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace kintsugi {

OutputPump::OutputPump(boost::asio::io_context& io, UniqueFd pipe, LineSplitter::LineFn on_line,
                       std::function<void()> on_end)
    : pipe_(io, pipe.get()),
      on_line_(std::move(on_line)),
      on_end_(std::move(on_end)),
      bytes_left_(std::numeric_limits<size_t>::max()) {
  (void)pipe.Release();  // only now: the descriptor's constructor may throw
}

void OutputPump::Start() { Wait(); }

void OutputPump::Wait() {
  pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                   [self = shared_from_this()](const boost::system::error_code& error) {
                     if (self->ended_) return;
                     // One read per turn of the loop, so that a chatty process does not starve the others.
                     if (error || self->ReadOnce(self->buffer_.size()) == ReadOutcome::kEnd) {
                       self->Finish();
                     } else if (!self->ended_) {
                       self->Wait();
                     }
                   });
}

OutputPump::ReadOutcome OutputPump::ReadOnce(size_t bytes_max) {
  const size_t want = std::min({bytes_max, buffer_.size(), bytes_left_});
  if (want == 0) return ReadOutcome::kEnd;
  const ssize_t size = ::read(pipe_.native_handle(), buffer_.data(), want);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return ReadOutcome::kNothingNow;
  if (size <= 0) return ReadOutcome::kEnd;
  if (bytes_left_ != std::numeric_limits<size_t>::max()) bytes_left_ -= static_cast<size_t>(size);
  splitter_.Feed(std::string_view(buffer_.data(), static_cast<size_t>(size)), on_line_);
  return ReadOutcome::kSome;
}

void OutputPump::ReadPending(size_t bytes_max) {
  while (!ended_ && bytes_max > 0) {
    // The end of the stream is left for the loop to find, so that on_end comes from there.
    if (ReadOnce(bytes_max) != ReadOutcome::kSome) return;
    bytes_max -= std::min(bytes_max, buffer_.size());
  }
}

void OutputPump::LimitRest(size_t bytes_max) { bytes_left_ = bytes_max; }

void OutputPump::Finish() {
  if (std::exchange(ended_, true)) return;
  splitter_.Flush(on_line_);
  boost::system::error_code ignored;
  pipe_.close(ignored);
  if (on_end_) on_end_();
}

void OutputPump::Close() {
  ended_ = true;
  boost::system::error_code ignored;
  pipe_.close(ignored);
}

}  // namespace kintsugi
