// ForkServer: a process that has loaded a program already and forks copies of itself that become ranks.
//
// An interpreter takes seconds to import what a trainer needs; a fork of one that has done so takes milliseconds. The
// server is a program of the user's language (integrations/python/kintsugi/warm.py); this is the launcher's end of the
// socket to it, and what makes a forked process the launcher's own.
//
// The server forks twice and its child ends, so that the copy falls to the launcher, which is the reaper of orphans below it
// (orphans.h): it can be waited for like any child.
// Protocol, one message each way for a copy (SOCK_SEQPACKET): "NAME=VALUE" strings of the copy's whole environment, each ended by
// a zero byte, with the descriptors of its output, error output, a socket, and those it is passed, numbered 3, 4, ... there. Back
// comes "pid N" or "refused WHY". The copy leads a process group before that, and waits for one byte on the socket. First of
// all comes "ready" or "refused WHY".
// Threads: one.
// Errors: kUnavailable where the server is not ready, refuses (it has threads, say), does not answer in time or is gone.
// Ownership: the server's process is the caller's; a copy is who calls Fork's, as one from ForkExec.
#pragma once

#include <string>

#include "runtime/process/spawn.h"

namespace kintsugi {

inline constexpr std::chrono::seconds kForkLimit{2};

class KINTSUGI_EXPORT ForkServer {
 public:
  static Result<ForkServer> Create();

  // To be passed to the server, and closed here once it has its copy.
  int server_end() const { return server_end_.get(); }
  void CloseServerEnd() { server_end_.Reset(); }

  // Whether copies can be had; never blocks.
  bool ready();
  // Why not, once the server has said that it will never be.
  const std::string& refusal() const { return refusal_; }
  // As ForkExec, but that the program and its arguments are the server's. Blocks for kForkLimit at most; a server that has not
  // answered then is asked no more.
  Result<SpawnedProcess> Fork(const ProcessSpec& spec, const std::function<Status(pid_t)>& before_program = nullptr);

 private:
  ForkServer(UniqueFd end, UniqueFd server_end) : end_(std::move(end)), server_end_(std::move(server_end)) {}
  Result<std::string> Hear(std::chrono::milliseconds limit);
  Status GiveUp(const std::string& why);

  UniqueFd end_;
  UniqueFd server_end_;
  bool ready_ = false;
  std::string refusal_;
};

}  // namespace kintsugi
