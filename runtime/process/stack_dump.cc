#include "runtime/process/stack_dump.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "runtime/process/child_process.h"

namespace kintsugi {
namespace {

constexpr int kLinesMax = 5000;

}  // namespace

class StackDump::Impl {
 public:
  Impl(boost::asio::io_context& io, std::function<void(std::string_view)> on_line, std::function<void()> on_done)
      : timer_(io), on_line_(std::move(on_line)), on_done_(std::move(on_done)) {}

  Status Start(boost::asio::io_context& io, pid_t pid, Duration limit) {
    ProcessSpec spec;
    spec.program = "eu-stack";
    spec.args = {"-p", std::to_string(pid)};
    ChildProcess::Callbacks callbacks;
    callbacks.on_line = [this](OutputStream stream, std::string_view line) {
      if (stream == OutputStream::kStdout && on_line_ && ++lines_ <= kLinesMax) on_line_(line);
    };
    callbacks.on_output_end = [this] { Finish(); };
    Result<std::unique_ptr<ChildProcess>> child = ChildProcess::Spawn(io, spec, std::move(callbacks));
    if (!child.ok() && child.status().code() == StatusCode::kNotFound)
      return {StatusCode::kNotFound, "eu-stack is not installed (Debian's package elfutils)"};
    if (!child.ok()) return child.status();
    child_ = std::move(child).value();
    timer_.expires_after(limit);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Finish();
    });
    return Status::Ok();
  }

  pid_t pid() const { return child_->pid(); }

 private:
  void Finish() {
    timer_.cancel();
    // The callback may end this object.
    if (const auto done = std::exchange(on_done_, nullptr)) done();
  }

  boost::asio::steady_timer timer_;
  std::function<void(std::string_view)> on_line_;
  std::function<void()> on_done_;
  int lines_ = 0;
  std::unique_ptr<ChildProcess> child_;
};

StackDump::StackDump(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StackDump::~StackDump() = default;
pid_t StackDump::pid() const { return impl_->pid(); }

Result<std::unique_ptr<StackDump>> StackDump::Start(boost::asio::io_context& io, pid_t pid, Duration limit,
                                                    std::function<void(std::string_view)> on_line,
                                                    std::function<void()> on_done) {
  auto impl = std::make_unique<Impl>(io, std::move(on_line), std::move(on_done));
  KINTSUGI_RETURN_IF_ERROR(impl->Start(io, pid, limit));
  return std::unique_ptr<StackDump>(new StackDump(std::move(impl)));
}

}  // namespace kintsugi
