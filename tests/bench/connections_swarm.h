// ConnectionSwarm: thousands of ranks in one process that join a controller, answer its orders at once, beat, and come
// back when their connections are cut. For bench_connections. Each rank has a connection of its own, or, with
// `ranks_per_node`, each node has one: it says what a launcher says, passes its ranks' frames on, and tells their
// pages.
//
// It runs in a child process of its own, so that its time and memory are not the controller's; several of them share a
// large world, since one thread would answer thousands of handshakes in step as no real ranks do. It beats until told
// otherwise: Cut ends every connection at once, the destructor all of it.
// Threads: one.
// Errors: end the process with a message and code 1.
// Units: in the names.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "runtime/base/unique_fd.h"
#include "runtime/net/secret.h"

namespace kintsugi::bench {

struct SwarmOptions {
  int first_rank = 0;
  int ranks = 1000;
  int ranks_per_node = 0;  // 0: direct connections
  int nodes = 0;           // of the whole run; `first_rank` and `ranks` are multiples of `ranks_per_node`
  int beats_per_second = 4;
  uint16_t port = 0;
};

inline constexpr const char* kSwarmJob = "connections";

class ConnectionSwarm {
 public:
  // Forks; call before the process has threads.
  ConnectionSwarm(const SwarmOptions& options, std::shared_ptr<const net::Secret> secret);
  ~ConnectionSwarm();  // ends it and waits
  ConnectionSwarm(const ConnectionSwarm&) = delete;
  ConnectionSwarm& operator=(const ConnectionSwarm&) = delete;

  void Cut();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd commands_;
};

}  // namespace kintsugi::bench
