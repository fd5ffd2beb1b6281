// A launcher in small, to be killed by guardian_test: starts one worker under a Guardian and repeats the worker's
// lines.
//
// Usage: process_test_launcher MODE MARK SCRIPT; MODE "stay" runs on, "leave" ends in order after a line "ready".
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <string>
#include <utility>

#include "runtime/process/child_process.h"
#include "runtime/process/guardian.h"

int main(int argc, char** argv) {
  using namespace kintsugi;
  if (argc != 4) return 64;
  const std::string mode = argv[1];
  const std::string mark = argv[2];
  Result<std::unique_ptr<Guardian>> guardian = Guardian::Start(mark);
  if (!guardian.ok()) return 65;
  boost::asio::io_context io;
  ProcessSpec spec;
  spec.program = "/bin/sh";
  spec.args = {"-c", argv[3]};
  spec.environment[mark.substr(0, mark.find('='))] = mark.substr(mark.find('=') + 1);
  ChildProcess::Callbacks callbacks;
  callbacks.on_line = [&](OutputStream, std::string_view line) {
    std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
    std::fflush(stdout);
    if (mode == "leave" && line == "ready") io.stop();
  };
  Result<std::unique_ptr<ChildProcess>> worker =
      ChildProcess::Spawn(io, spec, std::move(callbacks), ProcessHelpers{guardian->get(), nullptr});
  if (!worker.ok()) return 66;
  std::printf("guard %d\nworker %d\n", (*guardian)->pid(), (*worker)->pid());
  std::fflush(stdout);
  io.run();
  return 0;
}
