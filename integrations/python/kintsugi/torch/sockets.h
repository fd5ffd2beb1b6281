// OpenSockets: which TCP sockets this process has opened since it was asked before. A group's connections are found so: Gloo does
// not tell which they are.
//
// Threads: one at a time. Sockets of other threads are among them: who asks tells by their ports whose they are.
// Errors: what was closed meanwhile is left out.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace kintsugi::torch_door {

class OpenSockets {
 public:
  // Descriptor, inode, own port, the peer's (0: it listens).
  using Socket = std::tuple<int, uint64_t, int, int>;

  OpenSockets() { Opened(); }
  std::vector<Socket> Opened();

 private:
  std::set<std::pair<int, uint64_t>> known_;
};

}  // namespace kintsugi::torch_door
