// One process under test on its own event loop: collects what the callbacks bring.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/process/child_process.h"

namespace kintsugi {

// Only a safety: long enough for a loaded machine with sanitizers.
inline constexpr std::chrono::seconds kSafety{60};

inline ProcessSpec Shell(const std::string& script) {
  ProcessSpec spec;
  spec.program = "/bin/sh";
  spec.args = {"-c", script};
  return spec;
}

// A zombie counts as gone: it runs nothing, and who reaps it is not the test's affair.
inline bool IsGone(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return true;
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'Z' || text[name_end + 2] == 'X');
}

inline bool EventuallyTrue(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kSafety;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class ProcessHarness {
 public:
  struct Line {
    OutputStream stream;
    std::string text;
    bool operator==(const Line&) const = default;
  };

  Status Start(const ProcessSpec& spec, ProcessHelpers helpers = {}) {
    ChildProcess::Callbacks callbacks;
    callbacks.on_exit = [this](const ExitCause& cause) {
      cause_ = cause;
      lines_at_exit_ = lines_.size();
      if (on_exit) on_exit();
    };
    callbacks.on_line = [this](OutputStream stream, std::string_view line) {
      lines_.push_back({stream, std::string(line)});
      if (on_line) on_line();
    };
    callbacks.on_output_end = [this] {
      output_ended_ = true;
      if (on_output_end) on_output_end();
    };
    Result<std::unique_ptr<ChildProcess>> spawned = ChildProcess::Spawn(io_, spec, std::move(callbacks), helpers);
    if (!spawned.ok()) return spawned.status();
    process_ = std::move(spawned).value();
    return Status::Ok();
  }

  bool RunUntil(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kSafety;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(50));
    }
    return true;
  }
  bool RunToExit() {
    return RunUntil([this] { return cause_.has_value(); });
  }
  bool RunToEnd() {
    return RunUntil([this] { return output_ended_; });
  }
  bool RunToLines(size_t count) {
    return RunUntil([this, count] { return lines_.size() >= count; });
  }

  // Runs whatever is still queued on the loop.
  void Settle() {
    io_.restart();
    io_.run_for(std::chrono::milliseconds(100));
  }

  ChildProcess& process() { return *process_; }
  void Destroy() { process_.reset(); }
  const ExitCause& cause() const { return *cause_; }
  bool exited() const { return cause_.has_value(); }
  bool output_ended() const { return output_ended_; }
  const std::vector<Line>& lines() const { return lines_; }
  size_t lines_at_exit() const { return lines_at_exit_; }
  std::vector<std::string> Texts(OutputStream stream) const {
    std::vector<std::string> texts;
    for (const Line& line : lines_) {
      if (line.stream == stream) texts.push_back(line.text);
    }
    return texts;
  }
  std::string FirstLine() const { return lines_.empty() ? "" : lines_[0].text; }

  std::function<void()> on_exit;
  std::function<void()> on_line;
  std::function<void()> on_output_end;

 private:
  boost::asio::io_context io_;
  std::unique_ptr<ChildProcess> process_;
  std::optional<ExitCause> cause_;
  std::vector<Line> lines_;
  size_t lines_at_exit_ = 0;
  bool output_ended_ = false;
};

}  // namespace kintsugi
