// A fake libnccl for tests of the host's side: deadlines, aborts from other threads, old versions, missing functions.
//
// What: communicators over abstract Unix sockets, between threads or processes; operations run on the fake streams of
// fake_cuda.h. It says nothing about a real NCCL. It ends the process on what NCCL forbids: two threads inside one
// communicator, a use while an earlier call is in progress, an abort outside of a group, a free of a communicator that a thread is
// inside of. An abort sets its flag at once and frees at the end of the group. Sums are made in the order of ranks.
// Modes, from the environment when a communicator is made: FAKE_NCCL_SILENT=1 a peer's death is never told (NVLink);
// FAKE_NCCL_ABORT_MS=N an abort takes so long; FAKE_NCCL_PROGRESS_MS=N a call is in progress for so long.
// FAKE_NCCL_LAUNCH_MS=N a call of a blocking communicator takes so long.
// FAKE_NCCL_HOLD=ncclSend that function does not return until the communicator is aborted (blocking ones).
// Built with FAKE_NCCL_VERSION (number), FAKE_NCCL_OLD (without what came after 2.18), FAKE_NCCL_LACKS_ABORT, FAKE_NCCL_LACKS_COLLECTIVES.
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

enum { kSuccess = 0, kInternalError = 3, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7 };

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

// As in NCCL's interface.
enum Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16, kTypes };
enum Op { kSum, kProduct, kMax, kMin, kAverage, kOps };

size_t SizeOf(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

struct Bfloat16 {
  uint16_t bits;
  Bfloat16(float value) {
    uint32_t all;
    std::memcpy(&all, &value, sizeof(all));
    bits = static_cast<uint16_t>((all + 0x7fff + ((all >> 16) & 1)) >> 16);
  }
  operator float() const {
    const uint32_t all = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &all, sizeof(value));
    return value;
  }
};

// What sums of scaled elements have made; numbers from kOps on.
struct Scaled {
  int type;
  double scale;
  const void* on_device;  // else null
};
std::mutex scaled_mutex;
std::map<int, Scaled>& ScaledOps() {
  static auto* ops = new std::map<int, Scaled>;
  return *ops;
}

// `parts` of all ranks, in their order. Halves are added up as floats, and rounded at the end.
template <typename T, typename Wide>
void AddUp(const std::vector<const char*>& parts, char* to, size_t count, int op, double scale) {
  for (size_t i = 0; i < count; ++i) {
    const auto at = [&](size_t rank) {
      T value{0};
      std::memcpy(static_cast<void*>(&value), parts[rank] + i * sizeof(T), sizeof(T));
      return op >= kOps ? static_cast<Wide>(static_cast<Wide>(value) * static_cast<Wide>(scale))
                        : static_cast<Wide>(value);
    };
    Wide all = at(0);
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      const Wide next = at(rank);
      all = op == kProduct ? static_cast<Wide>(all * next)
            : op == kMax   ? std::max(all, next)
            : op == kMin   ? std::min(all, next)
                           : static_cast<Wide>(all + next);
    }
    if (op == kAverage) all = static_cast<Wide>(all / static_cast<Wide>(parts.size()));
    const T result = static_cast<T>(all);
    std::memcpy(to + i * sizeof(T), static_cast<const void*>(&result), sizeof(T));
  }
}

double ScaleFrom(const void* at, int type) {
  const auto read = [at](auto value) {
    std::memcpy(static_cast<void*>(&value), at, sizeof(value));
    return static_cast<double>(static_cast<float>(value));
  };
  double wide = 0;
  if (type == kFloat64) return std::memcpy(&wide, at, sizeof(wide)), wide;
  return type == kFloat16 ? read(_Float16{0}) : type == kBfloat16 ? read(Bfloat16{0}) : read(0.0f);
}

void AddUp(const std::vector<const char*>& parts, char* to, size_t count, int type, int op) {
  double scale = 1;
  if (op >= kOps) {
    std::unique_lock lock(scaled_mutex);
    const Scaled scaled = ScaledOps().at(op);
    lock.unlock();
    scale = scaled.on_device ? ScaleFrom(Reach(scaled.on_device), scaled.type) : scaled.scale;
  }
  switch (type) {
    case kInt8:
      return AddUp<int8_t, int8_t>(parts, to, count, op, scale);
    case kUint8:
      return AddUp<uint8_t, uint8_t>(parts, to, count, op, scale);
    case kInt32:
      return AddUp<int32_t, int32_t>(parts, to, count, op, scale);
    case kUint32:
      return AddUp<uint32_t, uint32_t>(parts, to, count, op, scale);
    case kInt64:
      return AddUp<int64_t, int64_t>(parts, to, count, op, scale);
    case kUint64:
      return AddUp<uint64_t, uint64_t>(parts, to, count, op, scale);
    case kFloat16:
      return AddUp<_Float16, float>(parts, to, count, op, scale);
    case kFloat32:
      return AddUp<float, float>(parts, to, count, op, scale);
    case kFloat64:
      return AddUp<double, double>(parts, to, count, op, scale);
    default:
      return AddUp<Bfloat16, float>(parts, to, count, op, scale);
  }
}

thread_local int group_depth = 0;
std::atomic<int> launches{0}, comms_made{0}, comms_freed{0};
using Clock = std::chrono::steady_clock;

class Comm {
 public:
  Comm(int ranks, int rank, const std::vector<Id>& ids, bool waits)
      : blocking(waits),
        ranks_(ranks),
        rank_(rank),
        ids_(ids),
        silent_(Setting("FAKE_NCCL_SILENT")),
        abort_ms_(Setting("FAKE_NCCL_ABORT_MS")),
        progress_ms_(Setting("FAKE_NCCL_PROGRESS_MS")),
        init_([this] { Connect(); }) {}

  // What an abort does at once.
  void Flag() { aborted_ = true; }

  // What it does at the end of the group, short of freeing.
  void End() {
    aborted_ = true;
    if (init_.joinable()) init_.join();
    while (operations_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(abort_ms_));
    for (int socket : sockets_)
      if (socket >= 0) close(socket);
  }

  int state() { return state_ == kSuccess && Clock::now() < busy_until_ ? int{kInProgress} : state_.load(); }

  // Of a blocking communicator: until its init is over, or was ended.
  int AwaitInit() {
    while (state_ == kInProgress && !aborted_) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return aborted_ ? int{kInternalError} : state_.load();
  }

  // A message to or from one rank; those of one group run at once, several with one rank in their order.
  struct Transfer {
    int peer;
    char* data;
    size_t size;
    bool out;
  };

  // Why nothing can be enqueued now; kSuccess: it can.
  int Refusal() {
    if (aborted_) return kInternalError;
    const int now = state();
    if (now == kInProgress) Forbidden("a call while an earlier one is in progress");
    return now;
  }

  // Messages, and what is done once all of them have come.
  struct Operation {
    std::vector<Transfer> transfers;
    std::vector<std::function<void()>> after;
    std::vector<std::shared_ptr<std::vector<char>>> rooms;  // of what came, until then
  };

  // `in` and `out` are where the device finds them. A collective by messages alone, added to what the group has.
  void AddGather(Operation& to, char* in, char* out, size_t bytes) {
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != rank_) {
        to.transfers.push_back({peer, in, bytes, true});
        to.transfers.push_back({peer, out + static_cast<size_t>(peer) * bytes, bytes, false});
      }
    to.after.push_back([=, own = out + static_cast<size_t>(rank_) * bytes] { std::memmove(own, in, bytes); });
  }

  void AddBroadcast(Operation& to, char* in, char* out, size_t bytes, int root) {
    if (rank_ != root) {
      to.transfers.push_back({root, out, bytes, false});
      return;
    }
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != rank_) to.transfers.push_back({peer, in, bytes, true});
    to.after.push_back([=] { std::memmove(out, in, bytes); });
  }

  // The sum of what all send from `in_of(receiver)`, at each rank in `receivers`.
  template <typename InOf>
  void AddSum(Operation& to, const InOf& in_of, char* out, size_t count, int type, int op,
              const std::vector<int>& receivers) {
    const size_t bytes = count * SizeOf(type);
    for (const int receiver : receivers) {
      if (receiver != rank_) {
        to.transfers.push_back({receiver, in_of(receiver), bytes, true});
        continue;
      }
      auto parts = std::make_shared<std::vector<const char*>>();
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) {
          parts->push_back(in_of(rank_));
          continue;
        }
        to.rooms.push_back(std::make_shared<std::vector<char>>(bytes));
        parts->push_back(to.rooms.back()->data());
        to.transfers.push_back({peer, to.rooms.back()->data(), bytes, false});
      }
      to.after.push_back([=] { AddUp(*parts, out, count, type, op); });
    }
  }

  std::vector<int> Everybody() const {
    std::vector<int> all;
    for (int rank = 0; rank < ranks_; ++rank) all.push_back(rank);
    return all;
  }
  int ranks() const { return ranks_; }

  int Operate(Stream* stream, Operation operation) {
    if (const int refusal = Refusal(); refusal != kSuccess) return refusal;
    for (const Transfer& transfer : operation.transfers)
      if (transfer.peer < 0 || transfer.peer >= ranks_) return kInvalidArgument;
    if (blocking) std::this_thread::sleep_for(std::chrono::milliseconds(launch_ms_));
    ++operations_;
    ++launches;
    // In the order they were asked for, on whatever streams: as NCCL has it within a communicator.
    stream->Enqueue([this, operation = std::move(operation), turn = asked_++]() mutable {
      while (turn_ != turn && !stopped()) std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (state_ == kSuccess) {
        if (Move(operation.transfers))
          for (const auto& after : operation.after) after();
        else if (!aborted_)
          state_ = kRemoteError;
      }
      ++turn_;
      --operations_;
    });
    busy_until_ = Clock::now() + std::chrono::milliseconds(progress_ms_);
    return state();
  }

  void Revoke() { revoked_ = true; }

  // Of a call that is stuck.
  void HoldIfTold(const char* call) const {
    const char* told = std::getenv("FAKE_NCCL_HOLD");
    while (blocking && told && std::strcmp(told, call) == 0 && !aborted_)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  std::atomic<int> inside{0};
  const bool blocking;

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
  const int abort_ms_, progress_ms_, launch_ms_ = Setting("FAKE_NCCL_LAUNCH_MS");
  std::vector<int> sockets_;
  std::atomic<int> state_{kInProgress};
  std::atomic<bool> aborted_{false}, revoked_{false};
  std::atomic<int> operations_{0};
  uint64_t asked_ = 0;
  std::atomic<uint64_t> turn_{0};
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

thread_local std::map<std::pair<Comm*, Stream*>, Comm::Operation> grouped;
thread_local std::vector<Comm*> to_be_freed, initialised;  // in this group

// `add` (Comm&, Operation&) to what the group has, or at once.
template <typename Add>
int Enqueue(const char* call, void* comm, void* stream, int type, const Add& add) {
  auto* const of = static_cast<Comm*>(comm);
  const Inside inside(*of);
  of->HoldIfTold(call);
  if (type < 0 || type >= kTypes) return kInvalidArgument;
  if (const int refusal = of->Refusal(); refusal != kSuccess) return refusal;
  if (group_depth > 0) return add(*of, grouped[{of, static_cast<Stream*>(stream)}]), int{kSuccess};
  Comm::Operation alone;
  add(*of, alone);
  return of->Operate(static_cast<Stream*>(stream), std::move(alone));
}

int Transfer(void* comm, void* stream, const void* data, size_t count, int type, int peer, bool out) {
  return Enqueue(out ? "ncclSend" : "ncclRecv", comm, stream, type, [&](Comm&, Comm::Operation& to) {
    to.transfers.push_back({peer, Reach(data), count * SizeOf(type), out});
  });
}

int Create(void** comm, int ranks, int rank, const std::vector<Id>& ids, const Config* config) {
  if (config->magic != 0xcafebeef) Forbidden("a configuration that was not begun as NCCL's is");
  if (rank < 0 || rank >= ranks) return 4;
  auto* const made = new Comm(ranks, rank, ids, config->blocking != 0);
  ++comms_made;
  *comm = made;
  if (group_depth > 0) return initialised.push_back(made), int{kSuccess};
  if (!made->blocking) return kInProgress;
  const Inside inside(*made);
  return made->AwaitInit();
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

FAKE_GPU_EXPORT int ncclSend(const void* data, size_t count, int type, int peer, void* comm, void* stream) {
  return Transfer(comm, stream, data, count, type, peer, true);
}

FAKE_GPU_EXPORT int ncclRecv(void* data, size_t count, int type, int peer, void* comm, void* stream) {
  return Transfer(comm, stream, data, count, type, peer, false);
}

#ifndef FAKE_NCCL_LACKS_COLLECTIVES
FAKE_GPU_EXPORT int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  return Enqueue("ncclAllReduce", comm, stream, type, [&](Comm& of, Comm::Operation& to) {
    of.AddSum(
        to, [from = Reach(in)](int) { return from; }, Reach(out), count, type, op, of.Everybody());
  });
}

FAKE_GPU_EXPORT int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, void* comm,
                               void* stream) {
  return Enqueue("ncclReduce", comm, stream, type, [&](Comm& of, Comm::Operation& to) {
    of.AddSum(to, [from = Reach(in)](int) { return from; }, Reach(out), count, type, op, {root});
  });
}

FAKE_GPU_EXPORT int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, void* comm,
                                      void* stream) {
  return Enqueue("ncclReduceScatter", comm, stream, type, [&](Comm& of, Comm::Operation& to) {
    const size_t bytes = count * SizeOf(type);
    of.AddSum(
        to, [=, from = Reach(in)](int receiver) { return from + static_cast<size_t>(receiver) * bytes; }, Reach(out),
        count, type, op, of.Everybody());
  });
}

FAKE_GPU_EXPORT int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* comm,
                                  void* stream) {
  return Enqueue("ncclBroadcast", comm, stream, type, [&](Comm& of, Comm::Operation& to) {
    of.AddBroadcast(to, Reach(in), Reach(out), count * SizeOf(type), root);
  });
}

FAKE_GPU_EXPORT int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  return Enqueue("ncclAllGather", comm, stream, type,
                 [&](Comm& of, Comm::Operation& to) { of.AddGather(to, Reach(in), Reach(out), count * SizeOf(type)); });
}

FAKE_GPU_EXPORT int ncclRedOpCreatePreMulSum(int* op, void* scale, int type, int residence, void*) {
  if (type < kFloat16 || type >= kTypes) return kInvalidArgument;
  std::lock_guard lock(scaled_mutex);
  static int next = kOps;
  *op = next++;
  ScaledOps()[*op] = residence == 0 ? Scaled{type, 0, scale} : Scaled{type, ScaleFrom(scale, type), nullptr};
  return kSuccess;
}

// Kept: what was enqueued with it may still run.
FAKE_GPU_EXPORT int ncclRedOpDestroy(int op, void*) { return op >= kOps ? kSuccess : kInvalidArgument; }
#endif

// What was asked for within the group runs at once, for each communicator; then what was aborted in it is freed.
FAKE_GPU_EXPORT int ncclGroupEnd() {
  if (--group_depth > 0) return kSuccess;
  int result = kSuccess;
  for (auto& [key, operation] : std::exchange(grouped, {})) {
    const Inside inside(*key.first);
    key.first->HoldIfTold("ncclGroupEnd");
    const int enqueued = key.first->Operate(key.second, std::move(operation));
    if (enqueued != kSuccess) result = enqueued;
  }
  for (Comm* const made : std::exchange(initialised, {})) {
    if (!made->blocking) continue;
    const Inside inside(*made);
    const int state = made->AwaitInit();
    if (state != kSuccess) result = state;
  }
  for (Comm* const ended : std::exchange(to_be_freed, {})) {
    {
      const Inside inside(*ended);
      ended->End();
    }
    delete ended;
    ++comms_freed;
  }
  return result;
}

#ifndef FAKE_NCCL_LACKS_ABORT
FAKE_GPU_EXPORT int ncclCommAbort(void* comm) {
  if (group_depth == 0) Forbidden("an abort outside of a group");
  auto* ended = static_cast<Comm*>(comm);
  if (ended->blocking) {  // a thread may be stuck inside: the flag gets it out
    ended->Flag();
    to_be_freed.push_back(ended);
    return 0;
  }
  const Inside inside(*ended);
  ended->Flag();
  to_be_freed.push_back(ended);
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

// Not a library's: what this process has launched, and how many communicators it has made and freed, which tests look at.
FAKE_GPU_EXPORT int fakeNcclLaunches() { return launches; }
FAKE_GPU_EXPORT int fakeNcclMade() { return comms_made; }
FAKE_GPU_EXPORT int fakeNcclFreed() { return comms_freed; }
