// A fake libnccl for tests of the host's side: deadlines, aborts from other threads, old versions, missing functions.
//
// What: communicators over abstract Unix sockets, between threads or processes; operations run on the fake streams of
// fake_cuda.h. It says nothing about a real NCCL. It ends the process on what NCCL forbids: two threads inside one
// communicator, a use while an earlier call is in progress, a blocking communicator, an abort outside of a group.
// Modes, from the environment when a communicator is made: FAKE_NCCL_SILENT=1 a peer's death is never told (NVLink);
// FAKE_NCCL_ABORT_MS=N an abort takes so long; FAKE_NCCL_PROGRESS_MS=N a call is in progress for so long.
// Built with FAKE_NCCL_VERSION (number), FAKE_NCCL_OLD (without what came after 2.18), FAKE_NCCL_LACKS_ABORT.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/fake_gpu/fake_cuda.h"

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION 22809
#endif

namespace kintsugi::fake {
namespace {

enum { kSuccess = 0, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7 };

struct Id {
  char internal[128];
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

[[noreturn]] void Forbidden(const char* what) {
  std::fprintf(stderr, "fake nccl: %s\n", what);
  std::abort();
}

int Setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : 0;
}

thread_local int group_depth = 0;
using Clock = std::chrono::steady_clock;

class Comm {
 public:
  Comm(int ranks, int rank, const std::vector<Id>& ids)
      : ranks_(ranks),
        rank_(rank),
        ids_(ids),
        silent_(Setting("FAKE_NCCL_SILENT")),
        abort_ms_(Setting("FAKE_NCCL_ABORT_MS")),
        progress_ms_(Setting("FAKE_NCCL_PROGRESS_MS")),
        init_([this] { Connect(); }) {}

  // What Abort does, short of freeing.
  void End() {
    aborted_ = true;
    if (init_.joinable()) init_.join();
    while (operations_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(abort_ms_));
    for (int socket : sockets_) close(socket);
  }

  int state() { return state_ == kSuccess && Clock::now() < busy_until_ ? int{kInProgress} : state_.load(); }

  int Operate(Stream* stream, std::function<bool(Comm&)> operation) {
    if (const int now = state(); now != kSuccess) {
      if (now == kInProgress) Forbidden("a call while an earlier one is in progress");
      return now;
    }
    ++operations_;
    stream->Enqueue([this, operation] {
      if (state_ == kSuccess && !operation(*this) && !aborted_) state_ = kRemoteError;
      --operations_;
    });
    busy_until_ = Clock::now() + std::chrono::milliseconds(progress_ms_);
    return state();
  }

  bool Put(const void* data, size_t size) { return Move(static_cast<char*>(const_cast<void*>(data)), size, true); }
  bool Take(void* data, size_t size) { return Move(static_cast<char*>(data), size, false); }
  void Revoke() { revoked_ = true; }

  std::atomic<int> inside{0};

 private:
  bool stopped() const { return aborted_ || revoked_; }

  bool Move(char* data, size_t size, bool out) {
    while (size > 0) {
      if (stopped()) return false;
      pollfd wait{sockets_[0], static_cast<short>(out ? POLLOUT : POLLIN), 0};
      if (poll(&wait, 1, 1) <= 0) continue;
      const ssize_t moved = out ? send(sockets_[0], data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : recv(sockets_[0], data, size, MSG_DONTWAIT);
      if (moved > 0) {
        data += moved;
        size -= static_cast<size_t>(moved);
      } else if (moved == 0 || (errno != EAGAIN && errno != EINTR)) {
        // The kernel of a silent transport spins until the abort flag is set.
        while (silent_ && !stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return false;
      }
    }
    return true;
  }

  sockaddr_un Address() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, ids_[0].internal, 32);
    return address;
  }

  // All bytes, or false on an abort or an end.
  bool Exact(int socket, char* data, size_t size, bool out) {
    while (size > 0 && !aborted_) {
      pollfd wait{socket, static_cast<short>(out ? POLLOUT : POLLIN), 0};
      if (poll(&wait, 1, 1) <= 0) continue;
      const ssize_t moved = out ? send(socket, data, size, MSG_NOSIGNAL) : recv(socket, data, size, 0);
      if (moved <= 0) return false;
      data += moved;
      size -= static_cast<size_t>(moved);
    }
    return size == 0;
  }

  // Rank 0 waits for all the others, compares what they were given, and lets them go.
  void Connect() {
    uint64_t given = static_cast<uint64_t>(ranks_);
    for (const Id& id : ids_)
      for (char c : id.internal) given = given * 1099511628211u + static_cast<unsigned char>(c);
    char verdict = 1;
    const sockaddr_un address = Address();
    const auto* at = reinterpret_cast<const sockaddr*>(&address);
    constexpr socklen_t kLength = offsetof(sockaddr_un, sun_path) + 33;
    if (rank_ == 0) {
      const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (bind(listener, at, kLength) != 0 || listen(listener, 128) != 0) Forbidden("an id was used twice");
      while (static_cast<int>(sockets_.size()) < ranks_ - 1 && !aborted_) {
        pollfd wait{listener, POLLIN, 0};
        if (poll(&wait, 1, 1) <= 0) continue;
        const int other = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        uint64_t theirs = 0;
        if (other < 0) continue;
        if (!Exact(other, reinterpret_cast<char*>(&theirs), sizeof(theirs), false)) {
          close(other);
          continue;
        }
        if (theirs != given) verdict = 2;
        sockets_.push_back(other);
      }
      close(listener);
      for (int socket : sockets_) Exact(socket, &verdict, 1, true);
    } else {
      while (!aborted_) {
        const int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(other, at, kLength) == 0) {
          sockets_.push_back(other);
          if (!Exact(other, reinterpret_cast<char*>(&given), sizeof(given), true) || !Exact(other, &verdict, 1, false))
            verdict = 3;
          break;
        }
        close(other);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    if (!aborted_) state_ = verdict == 1 ? kSuccess : verdict == 2 ? kInvalidUsage : kRemoteError;
  }

  const int ranks_, rank_;
  const std::vector<Id> ids_;
  const bool silent_;
  const int abort_ms_, progress_ms_;
  std::vector<int> sockets_;
  std::atomic<int> state_{kInProgress};
  std::atomic<bool> aborted_{false}, revoked_{false};
  std::atomic<int> operations_{0};
  Clock::time_point busy_until_{};
  std::thread init_;
};

// NCCL's communicators are not thread-safe.
class Inside {
 public:
  explicit Inside(Comm& comm) : comm_(comm) {
    if (comm_.inside.fetch_add(1) != 0) Forbidden("two threads are inside one communicator");
  }
  ~Inside() { comm_.inside.fetch_sub(1); }

 private:
  Comm& comm_;
};

int Create(void** comm, int ranks, int rank, const std::vector<Id>& ids, const Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) Forbidden("a communicator that is not non-blocking");
  if (rank < 0 || rank >= ranks) return 4;
  *comm = new Comm(ranks, rank, ids);
  return group_depth > 0 ? int{kSuccess} : int{kInProgress};
}

}  // namespace
}  // namespace kintsugi::fake

using namespace kintsugi::fake;

FAKE_GPU_EXPORT int ncclGetVersion(int* version) { return *version = FAKE_NCCL_VERSION, 0; }
FAKE_GPU_EXPORT const char* ncclGetErrorString(int code) {
  return code == kRemoteError ? "remote process exited" : "fake error";
}
FAKE_GPU_EXPORT const char* ncclGetLastError(void*) { return ""; }
FAKE_GPU_EXPORT int ncclGroupStart() { return ++group_depth, 0; }
FAKE_GPU_EXPORT int ncclGroupEnd() { return --group_depth, 0; }

FAKE_GPU_EXPORT int ncclGetUniqueId(Id* id) {
  std::random_device random;
  *id = {};
  for (int i = 0; i < 32; ++i) id->internal[i] = "0123456789abcdef"[random() % 16];
  return 0;
}

FAKE_GPU_EXPORT int ncclCommInitRankConfig(void** comm, int ranks, Id id, int rank, Config* config) {
  return Create(comm, ranks, rank, {id}, config);
}

FAKE_GPU_EXPORT int ncclCommGetAsyncError(void* comm, int* state) {
  const Inside inside(*static_cast<Comm*>(comm));
  return *state = static_cast<Comm*>(comm)->state(), 0;
}

FAKE_GPU_EXPORT int ncclSend(const void* data, size_t size, int, int, void* comm, void* stream) {
  const Inside inside(*static_cast<Comm*>(comm));
  return static_cast<Comm*>(comm)->Operate(static_cast<Stream*>(stream), [=](Comm& c) { return c.Put(data, size); });
}

FAKE_GPU_EXPORT int ncclRecv(void* data, size_t size, int, int, void* comm, void* stream) {
  const Inside inside(*static_cast<Comm*>(comm));
  return static_cast<Comm*>(comm)->Operate(static_cast<Stream*>(stream), [=](Comm& c) { return c.Take(data, size); });
}

#ifndef FAKE_NCCL_LACKS_ABORT
FAKE_GPU_EXPORT int ncclCommAbort(void* comm) {
  if (group_depth == 0) Forbidden("an abort outside of a group");
  auto* ended = static_cast<Comm*>(comm);
  {
    const Inside inside(*ended);
    ended->End();
  }
  delete ended;
  return 0;
}
#endif

#ifndef FAKE_NCCL_OLD
FAKE_GPU_EXPORT int ncclCommInitRankScalable(void** comm, int ranks, int rank, int count, Id* ids, Config* config) {
  return Create(comm, ranks, rank, std::vector<Id>(ids, ids + count), config);
}

FAKE_GPU_EXPORT int ncclCommRevoke(void* comm, int flags) {
  const Inside inside(*static_cast<Comm*>(comm));
  if (flags != 0) return 4;
  static_cast<Comm*>(comm)->Revoke();
  return 0;
}
#endif
