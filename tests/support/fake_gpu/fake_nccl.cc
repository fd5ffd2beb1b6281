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
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/fake_gpu/fake_cuda.h"

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION 22809
#endif

namespace kintsugi::fake {
namespace {

enum { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7 };

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
std::atomic<int> launches{0};
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
    for (int socket : sockets_)
      if (socket >= 0) close(socket);
  }

  int state() { return state_ == kSuccess && Clock::now() < busy_until_ ? int{kInProgress} : state_.load(); }

  // A message to or from one rank; those of one group run at once, several with one rank in their order.
  struct Transfer {
    int peer;
    char* data;
    size_t size;
    bool out;
  };

  // Why nothing can be enqueued now; kSuccess: it can.
  int Refusal() {
    const int now = state();
    if (now == kInProgress) Forbidden("a call while an earlier one is in progress");
    return now;
  }

  int Operate(Stream* stream, std::vector<Transfer> transfers) {
    if (const int refusal = Refusal(); refusal != kSuccess) return refusal;
    for (const Transfer& transfer : transfers)
      if (transfer.peer < 0 || transfer.peer >= ranks_) return kInvalidArgument;
    ++operations_;
    ++launches;
    stream->Enqueue([this, transfers = std::move(transfers)]() mutable {
      if (state_ == kSuccess && !Move(transfers) && !aborted_) state_ = kRemoteError;
      --operations_;
    });
    busy_until_ = Clock::now() + std::chrono::milliseconds(progress_ms_);
    return state();
  }

  void Revoke() { revoked_ = true; }

  std::atomic<int> inside{0};

 private:
  bool stopped() const { return aborted_ || revoked_; }

  // What a rank sends to itself meets what it receives from itself, in their order; alone either would wait for ever.
  bool MoveToSelf(std::vector<Transfer>& transfers) {
    std::vector<Transfer*> sends, receives;
    for (Transfer& one : transfers)
      if (one.peer == rank_) (one.out ? sends : receives).push_back(&one);
    if (sends.size() != receives.size()) Forbidden("a message to itself without its other half in the group");
    for (size_t i = 0; i < sends.size(); ++i) {
      if (sends[i]->size != receives[i]->size) return false;
      std::memcpy(receives[i]->data, sends[i]->data, sends[i]->size);
      sends[i]->size = receives[i]->size = 0;
    }
    return true;
  }

  bool Move(std::vector<Transfer>& transfers) {
    if (!MoveToSelf(transfers)) return false;
    for (;;) {
      std::vector<Transfer*> active;
      std::vector<pollfd> waits;
      for (Transfer& one : transfers) {
        const auto same = [&](const Transfer* other) { return other->peer == one.peer && other->out == one.out; };
        if (one.size == 0 || std::any_of(active.begin(), active.end(), same)) continue;
        active.push_back(&one);
        waits.push_back({sockets_[static_cast<size_t>(one.peer)], static_cast<short>(one.out ? POLLOUT : POLLIN), 0});
      }
      if (active.empty()) return true;
      if (stopped()) return false;
      if (poll(waits.data(), waits.size(), 1) <= 0) continue;
      for (size_t i = 0; i < active.size(); ++i)
        if (waits[i].revents != 0 && !Step(waits[i].fd, *active[i])) return false;
    }
  }

  // Some bytes of one transfer; false when its peer is gone.
  bool Step(int socket, Transfer& one) {
    const ssize_t moved = one.out ? send(socket, one.data, one.size, MSG_NOSIGNAL | MSG_DONTWAIT)
                                  : recv(socket, one.data, one.size, MSG_DONTWAIT);
    if (moved > 0) {
      one.data += moved;
      one.size -= static_cast<size_t>(moved);
      return true;
    }
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    // The kernel of a silent transport spins until the abort flag is set.
    while (silent_ && !stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return false;
  }

  // Each rank listens at its own.
  sockaddr_un AddressOf(int rank) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, ids_[0].internal, 32);
    std::memcpy(address.sun_path + 33, &rank, sizeof(rank));
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

  struct Hello {
    uint64_t given;
    int rank;
  };

  // A socket to every rank: a rank dials those below it and is dialled by those above. Who listens compares what both
  // were given.
  void Connect() {
    Hello mine{static_cast<uint64_t>(ranks_), rank_};
    for (const Id& id : ids_)
      for (char c : id.internal) mine.given = mine.given * 1099511628211u + static_cast<unsigned char>(c);
    sockets_.assign(static_cast<size_t>(ranks_), -1);
    constexpr socklen_t kLength = offsetof(sockaddr_un, sun_path) + 33 + sizeof(int);
    const sockaddr_un here = AddressOf(rank_);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, reinterpret_cast<const sockaddr*>(&here), kLength) != 0 || listen(listener, 128) != 0)
      Forbidden("an id was used twice");
    char verdict = 1;
    for (int peer = 0; peer < rank_ && verdict == 1 && !aborted_; ++peer)
      verdict = Dial(AddressOf(peer), kLength, peer, mine);
    for (int waiting = ranks_ - 1 - rank_; waiting > 0 && verdict == 1 && !aborted_;) {
      pollfd wait{listener, POLLIN, 0};
      if (poll(&wait, 1, 1) <= 0) continue;
      const int other = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      Hello theirs{};
      if (other < 0) continue;
      if (!Exact(other, reinterpret_cast<char*>(&theirs), sizeof(theirs), false) || theirs.rank <= rank_ ||
          theirs.rank >= ranks_) {
        close(other);
        continue;
      }
      if (theirs.given != mine.given) verdict = 2;
      sockets_[static_cast<size_t>(theirs.rank)] = other;
      Exact(other, &verdict, 1, true);
      --waiting;
    }
    close(listener);
    if (!aborted_) state_ = verdict == 1 ? kSuccess : verdict == 2 ? kInvalidUsage : kRemoteError;
  }

  char Dial(const sockaddr_un& address, socklen_t length, int peer, Hello mine) {
    while (!aborted_) {
      const int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(other, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
        sockets_[static_cast<size_t>(peer)] = other;
        char verdict = 3;
        if (!Exact(other, reinterpret_cast<char*>(&mine), sizeof(mine), true) || !Exact(other, &verdict, 1, false))
          return 3;
        return verdict;
      }
      close(other);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return 3;
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

thread_local std::map<std::pair<Comm*, Stream*>, std::vector<Comm::Transfer>> grouped;

int Transfer(void* comm, void* stream, const Comm::Transfer& transfer, int type) {
  auto* const of = static_cast<Comm*>(comm);
  const Inside inside(*of);
  if (type != 0) return kInvalidArgument;  // bytes are all that is needed
  if (group_depth == 0) return of->Operate(static_cast<Stream*>(stream), {transfer});
  if (const int refusal = of->Refusal(); refusal != kSuccess) return refusal;
  grouped[{of, static_cast<Stream*>(stream)}].push_back(transfer);
  return kSuccess;
}

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

FAKE_GPU_EXPORT int ncclSend(const void* data, size_t size, int type, int peer, void* comm, void* stream) {
  return Transfer(comm, stream, {peer, static_cast<char*>(const_cast<void*>(data)), size, true}, type);
}

FAKE_GPU_EXPORT int ncclRecv(void* data, size_t size, int type, int peer, void* comm, void* stream) {
  return Transfer(comm, stream, {peer, static_cast<char*>(data), size, false}, type);
}

// What was asked for within the group runs at once, for each communicator.
FAKE_GPU_EXPORT int ncclGroupEnd() {
  if (--group_depth > 0) return kSuccess;
  int result = kSuccess;
  for (auto& [key, transfers] : std::exchange(grouped, {})) {
    const Inside inside(*key.first);
    const int enqueued = key.first->Operate(key.second, std::move(transfers));
    if (enqueued != kSuccess) result = enqueued;
  }
  return result;
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

// Not a library's: how much this process has launched, which a test looks at.
FAKE_GPU_EXPORT int fakeNcclLaunches() { return launches; }
