// OpenSockets: which TCP sockets this process has opened since it was asked before. A group's connections are found so:
// Gloo does not tell which they are.
//
// Threads: one at a time. Sockets of other threads are among them: the caller tells by their ports whose they are.
// Errors: what was closed meanwhile is left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kintsugi::torch_door {

class OpenSockets {
 public:
  struct Socket {
    int descriptor = -1;
    uint64_t inode = 0;
    int own_port = 0;
    int peer_port = 0;  // 0: it listens
    // Address and port of both ends: what one side calls its own, the other calls the peer's.
    std::string own, peer;
  };

  OpenSockets() { Opened(); }
  std::vector<Socket> Opened();

 private:
  std::vector<uint64_t> inodes_;  // of each descriptor; 0: it is free
};

}  // namespace kintsugi::torch_door
