// The two processes of the stream benchmark: a child that sends what it is told to, and the receiving side of each way.
//
// Ways: the state stream over a link; a raw TCP socket (1 MiB writes, 4 MiB buffers); a bare Gloo loop (1 MiB messages,
// eight in flight).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "replica/links/make_link.h"
#include "replica/stream/state_stream.h"

namespace kintsugi::bench {

enum class Way : int32_t { kQuit, kStream, kRawSocket, kBareGloo };

struct Order {
  Way way = Way::kQuit;
  LinkPreference prefer = LinkPreference::kAutomatic;
  ChecksumAlgorithm checksum = ChecksumAlgorithm::kNone;
  bool shared = false;  // send from agent-allocated memory
  int32_t number = 0;   // of the transfer; names its link
  int32_t port = 0;     // raw socket
};

constexpr size_t kTensors = 64;

// `data` cut into kTensors tensors.
std::vector<StreamItem> Tensors(const Memory& memory);

// Anonymous memory, by pages of the system's default size.
class Pages {
 public:
  explicit Pages(uint64_t size_bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  Memory memory() const { return {.data = data_, .size_bytes = size_bytes_}; }
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_;
  uint64_t size_bytes_;
};

// The sending process: holds the state twice, in plain and in shared memory.
class Peer {
 public:
  Peer(const std::filesystem::path& directory, uint64_t size_bytes);
  ~Peer();
  void Send(const Order& order) const;
  // CPU time that this process and the sending one have used, all their threads.
  double CpuSecondsOfBoth() const;

 private:
  pid_t pid_ = -1;
  int orders_ = -1;
};

// Seconds from the open connection to the last byte in place. Exits with a message when a transfer fails.
double ReceiveStream(const std::filesystem::path& directory, const Peer& peer, Order order, const Memory& target);
double ReceiveRaw(const Peer& peer, Order order, const Memory& target);
double ReceiveBareGloo(const std::filesystem::path& directory, const Peer& peer, Order order, const Memory& target);

}  // namespace kintsugi::bench
