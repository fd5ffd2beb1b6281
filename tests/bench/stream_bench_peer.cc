#include "tests/bench/stream_bench_peer.h"

#include <arpa/inet.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "callbacks/state/shared_memory.h"
#include "tests/bench/figures.h"
#include "tests/support/directory_store.h"

namespace kintsugi::bench {
namespace {

constexpr uint64_t kMessage = 1 << 20;
constexpr Rank kReceiver{0}, kSender{1};

TimePoint Soon() { return SteadyClock::SteadyNow() + std::chrono::seconds(60); }

double SecondsSince(TimePoint start) { return std::chrono::duration<double>(SteadyClock::SteadyNow() - start).count(); }

std::unique_ptr<Link> Open(const std::filesystem::path& directory, const Order& order, Rank self, Rank peer) {
  DirectoryStore store(directory);
  auto link = MakeLink(store, {.generation = Generation(1),
                               .self = self,
                               .peer = peer,
                               .name = std::to_string(order.number),
                               .deadline = Soon(),
                               .prefer = order.prefer});
  Need(link.status());
  return std::move(*link);
}

void SetBuffers(int socket) {
  const int bytes = 4 << 20, on = 1;
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void SendRaw(const Order& order, const Memory& memory) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  SetBuffers(socket);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(order.port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) _exit(3);
  const auto* data = static_cast<const uint8_t*>(memory.data);
  for (uint64_t at = 0; at < memory.size_bytes;) {
    const ssize_t sent = write(socket, data + at, std::min(kMessage, memory.size_bytes - at));
    if (sent <= 0) _exit(4);
    at += static_cast<uint64_t>(sent);
  }
  close(socket);
}

std::shared_ptr<gloo::rendezvous::Context> BareContext(const std::filesystem::path& directory, int rank, int number) {
  const auto folder = directory / ("bare-" + std::to_string(number));
  std::filesystem::create_directories(folder);
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
  context->connectFullMesh(store, device);
  return context;
}

// Both sides of the loop differ only in the direction.
void BareLoop(gloo::Context& context, const Memory& memory, bool send) {
  auto* data = static_cast<uint8_t*>(memory.data);
  std::deque<std::unique_ptr<gloo::transport::UnboundBuffer>> pieces;
  const auto wait = [&] {
    send ? pieces.front()->waitSend() : pieces.front()->waitRecv();
    pieces.pop_front();
  };
  for (uint64_t at = 0; at < memory.size_bytes; at += kMessage) {
    if (pieces.size() == 8) wait();
    pieces.push_back(context.createUnboundBuffer(data + at, std::min(kMessage, memory.size_bytes - at)));
    send ? pieces.back()->send(1 - context.rank, 1) : pieces.back()->recv(1 - context.rank, 1);
  }
  while (!pieces.empty()) wait();
}

// The child's whole life.
void Serve(int orders, const std::filesystem::path& directory, uint64_t size_bytes) {
  const Pages heap(size_bytes);
  auto shared = SharedMemory::Allocate(size_bytes);
  Need(shared.status());
  for (uint64_t at = 0; at < size_bytes; at += 8) {
    const uint64_t word = at * 0x9E3779B97F4A7C15u;
    std::memcpy(heap.data() + at, &word, 8);
  }
  std::memcpy(shared->memory().data, heap.data(), size_bytes);
  for (Order order; read(orders, &order, sizeof(order)) == sizeof(order) && order.way != Way::kQuit;) {
    const Memory memory = order.shared ? shared->memory() : heap.memory();
    if (order.way == Way::kRawSocket) SendRaw(order, memory);
    if (order.way == Way::kBareGloo) BareLoop(*BareContext(directory, 1, order.number), memory, true);
    if (order.way == Way::kStream) {
      const auto link = Open(directory, order, kSender, kReceiver);
      Need(SendState(*link, Tensors(memory), Step(1), {.checksum = order.checksum}));
    }
  }
}

}  // namespace

std::vector<StreamItem> Tensors(const Memory& memory) {
  std::vector<StreamItem> items;
  const uint64_t each = memory.size_bytes / kTensors;
  for (size_t i = 0; i < kTensors; ++i)
    items.push_back({"tensor." + std::to_string(i), SliceOf(memory, i * each, each)});
  return items;
}

Pages::Pages(uint64_t size_bytes) : size_bytes_(size_bytes) {
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) Need({StatusCode::kResourceExhausted, "no memory: use a smaller --mib"});
  data_ = static_cast<uint8_t*>(data);
}
Pages::~Pages() { munmap(data_, size_bytes_); }

Peer::Peer(const std::filesystem::path& directory, uint64_t size_bytes) {
  int ends[2];
  if (pipe(ends) != 0) Need({StatusCode::kResourceExhausted, "no pipe"});
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[1]);
    Serve(ends[0], directory, size_bytes);
    _exit(0);
  }
  close(ends[0]);
  orders_ = ends[1];
}

Peer::~Peer() {
  Send({});
  close(orders_);
  waitpid(pid_, nullptr, 0);
}

void Peer::Send(const Order& order) const {
  if (write(orders_, &order, sizeof(order)) != sizeof(order)) Need({StatusCode::kCommFailure, "the peer is gone"});
}

double Peer::CpuSecondsOfBoth() const {
  clockid_t theirs{};
  if (clock_getcpuclockid(pid_, &theirs) != 0) Need({StatusCode::kCommFailure, "the peer is gone"});
  double seconds = 0;
  for (const clockid_t clock : {clockid_t{CLOCK_PROCESS_CPUTIME_ID}, theirs}) {
    timespec now{};
    clock_gettime(clock, &now);
    seconds += static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }
  return seconds;
}

double ReceiveStream(const std::filesystem::path& directory, const Peer& peer, Order order, const Memory& target) {
  order.way = Way::kStream;
  peer.Send(order);
  const auto link = Open(directory, order, kReceiver, kSender);
  ReceiveLedger ledger;
  StreamResult result;
  const auto items = Tensors(target);
  const TimePoint start = SteadyClock::SteadyNow();
  Need(ReceiveState({link.get()}, items, Step(1), ledger, {}, &result));
  return SecondsSince(start);
}

double ReceiveRaw(const Peer& peer, Order order, const Memory& target) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  SetBuffers(listener);
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    Need({StatusCode::kResourceExhausted, "no listening socket"});
  order.way = Way::kRawSocket;
  order.port = ntohs(address.sin_port);
  peer.Send(order);
  const int socket = accept(listener, nullptr, nullptr);
  SetBuffers(socket);
  auto* data = static_cast<uint8_t*>(target.data);
  const TimePoint start = SteadyClock::SteadyNow();
  for (uint64_t at = 0; at < target.size_bytes;) {
    const ssize_t got = recv(socket, data + at, std::min(kMessage, target.size_bytes - at), MSG_WAITALL);
    if (got <= 0) Need({StatusCode::kCommFailure, "the raw socket broke"});
    at += static_cast<uint64_t>(got);
  }
  const double seconds = SecondsSince(start);
  close(socket);
  close(listener);
  return seconds;
}

double ReceiveBareGloo(const std::filesystem::path& directory, const Peer& peer, Order order, const Memory& target) {
  order.way = Way::kBareGloo;
  peer.Send(order);
  const auto context = BareContext(directory, 0, order.number);
  const TimePoint start = SteadyClock::SteadyNow();
  BareLoop(*context, target, false);
  return SecondsSince(start);
}

}  // namespace kintsugi::bench
