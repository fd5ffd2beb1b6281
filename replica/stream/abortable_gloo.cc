#include "replica/stream/abortable_gloo.h"

#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <net/if.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <unordered_set>
#include <utility>

#include "replica/stream/gloo_ports.h"
#include "replica/stream/loop_turns.h"
#include "replica/stream/rank_ports.h"
#include "replica/stream/sigpipe_guard.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"

namespace kintsugi {
namespace {

using gloo::transport::Context;
using gloo::transport::Pair;
using gloo::transport::UnboundBuffer;

// A wait without a limit of its own: Gloo's timeout closes every pair of a context, so it must never be the one to
// fire.
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24);

}  // namespace

namespace internal {

class AbortableContext;

// What one device, its contexts and their buffers share.
class AbortDomain {
 public:
  explicit AbortDomain(std::shared_ptr<LoopTurns> turns) : turns_(std::move(turns)) {}
  ~AbortDomain() {
    if (closer_.joinable()) closer_.join();
  }
  LoopTurns& turns() const { return *turns_; }
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  void Check() const {
    if (aborted()) throw GlooAborted("aborted by the runtime");
  }

  void Abort();
  void Add(UnboundBuffer* buffer);
  void Remove(UnboundBuffer* buffer);
  void Add(AbortableContext* context);
  void Remove(AbortableContext* context);
  Mutex& mutex() KINTSUGI_RETURNS(mutex_) { return mutex_; }

 private:
  void CloseLate();

  const std::shared_ptr<LoopTurns> turns_;
  std::atomic<bool> aborted_{false};
  Mutex mutex_;  // held while Abort touches members of both sets, so that none is destroyed under it
  std::unordered_set<UnboundBuffer*> buffers_ KINTSUGI_GUARDED_BY(mutex_);
  std::unordered_set<AbortableContext*> connecting_ KINTSUGI_GUARDED_BY(mutex_);
  CondVar none_connecting_;
  std::thread closer_;  // guarded by mutex_ until the end
};

class AbortableBuffer final : public UnboundBuffer {
 public:
  AbortableBuffer(std::shared_ptr<AbortDomain> domain, std::shared_ptr<Context> context,
                  std::unique_ptr<UnboundBuffer> inner)
      : UnboundBuffer(inner->ptr, inner->size),
        domain_(std::move(domain)),
        context_(std::move(context)),
        inner_(std::move(inner)) {
    domain_->Add(inner_.get());
  }
  ~AbortableBuffer() override { domain_->Remove(inner_.get()); }

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    domain_->Check();
    if (inner_->waitRecv(rank, Limit(timeout))) return true;
    throw GlooAborted("receive aborted by the runtime");
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    domain_->Check();
    if (inner_->waitSend(rank, Limit(timeout))) return true;
    throw GlooAborted("send aborted by the runtime");
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int rank, uint64_t slot, size_t offset, size_t length) override {
    domain_->Check();
    NeedPair(rank);
    const SigpipeGuard guard;
    inner_->send(rank, slot, offset, length);
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t length) override {
    domain_->Check();
    NeedPair(rank);
    const SigpipeGuard guard;  // posting a receive writes a notice to the peer
    inner_->recv(rank, slot, offset, length);
  }
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t length) override {
    domain_->Check();
    for (const int rank : ranks) NeedPair(rank);
    const SigpipeGuard guard;  // posting a receive writes a notice to the peer
    inner_->recv(std::move(ranks), slot, offset, length);
  }

 private:
  static std::chrono::milliseconds Limit(std::chrono::milliseconds timeout) {
    return timeout == gloo::transport::kUnsetTimeout ? kNever : timeout;
  }

  // Gloo would follow a null pointer.
  void NeedPair(int rank) const {
    if (context_->getPair(rank) == nullptr)
      throw gloo::InvalidOperationException("rank " + std::to_string(context_->rank) +
                                            " of the group is not connected to rank " + std::to_string(rank) +
                                            ": connect with other GlooMembers::pairs");
  }

  std::shared_ptr<AbortDomain> domain_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<UnboundBuffer> inner_;
};

class AbortableContext final : public ConnectingContext {
 public:
  // `ports`: the device where it keeps to a range of ports; may be null.
  AbortableContext(std::shared_ptr<AbortDomain> domain, std::shared_ptr<Context> inner,
                   std::shared_ptr<GlooPortDevice> ports)
      : ConnectingContext(inner->rank, inner->size),
        domain_(std::move(domain)),
        inner_(std::move(inner)),
        ports_(std::move(ports)) {
    domain_->Add(this);
  }
  ~AbortableContext() override {
    domain_->Remove(this);
    // Each pair that ends waits for a turn.
    const LoopTurns::Asked turns(domain_->turns());
    inner_.reset();
  }

  std::unique_ptr<Pair>& getPair(int peer) override {
    if (!connected_) {
      // The rendezvous takes a pair to connect it, one after the other.
      const MutexLock lock(domain_->mutex());
      domain_->Check();
      connecting_peer_ = peer;
    }
    return inner_->getPair(peer);
  }

  void ConnectPair(int peer, const std::vector<char>& address) override {
    getPair(peer)->connect(address);
    const MutexLock lock(domain_->mutex());
    connecting_peer_ = -1;
    domain_->Check();
  }

  void Connected() override {
    if (!connected_.exchange(true)) domain_->Remove(this);
    domain_->Check();
  }

  std::unique_ptr<Pair>& createPair(int peer) override {
    const MutexLock lock(domain_->mutex());
    domain_->Check();
    // A pair keeps the timeout it was created with and waits five times as long for its connection; connecting is all
    // that a pair's timeout is used for here.
    inner_->setTimeout(std::max<std::chrono::milliseconds>(getTimeout() / 5, std::chrono::milliseconds(1)));
    if (!ports_) return inner_->createPair(peer);
    ports_->CreatePair([&] { inner_->createPair(peer); });
    return inner_->getPair(peer);
  }

  std::unique_ptr<UnboundBuffer> createUnboundBuffer(void* data, size_t length) override {
    Connected();  // a group connected by Gloo's own rendezvous does not say so
    return std::make_unique<AbortableBuffer>(domain_, inner_, inner_->createUnboundBuffer(data, length));
  }

  // With the domain's mutex. Wakes a thread that waits in Pair::connect. The other pairs are left alone: closing resets
  // the connection, and Gloo ends a process that is reset between accept and getpeername.
  void EndConnecting() {
    domain_->mutex().AssertHeld();
    if (connecting_peer_ >= 0) inner_->getPair(connecting_peer_)->close();
  }

 private:
  std::shared_ptr<AbortDomain> domain_;
  std::shared_ptr<Context> inner_;
  std::shared_ptr<GlooPortDevice> ports_;
  int connecting_peer_ KINTSUGI_GUARDED_BY(domain_->mutex()) = -1;
  std::atomic<bool> connected_{false};
};

void AbortDomain::Abort() {
  const MutexLock lock(mutex_);
  aborted_.store(true, std::memory_order_release);
  for (UnboundBuffer* buffer : buffers_) {
    buffer->abortWaitSend();
    buffer->abortWaitRecv();
  }
  // While a connection is being made the device must go on accepting.
  if (connecting_.empty()) return turns_->Rest();
  if (!closer_.joinable()) closer_ = std::thread([this] { CloseLate(); });
}

void AbortDomain::CloseLate() {
  {
    MutexLock lock(mutex_);
    if (none_connecting_.WaitFor(lock, kConnectGrace,
                                 [this]() KINTSUGI_REQUIRES(mutex_) { return connecting_.empty(); }))
      return;
  }
  turns_->AwaitHandled();  // what is not connected by now is not on its way through this device
  const LoopTurns::Asked turns(*turns_);
  const MutexLock lock(mutex_);
  for (AbortableContext* context : connecting_) context->EndConnecting();
}

void AbortDomain::Add(UnboundBuffer* buffer) {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(buffers_.insert(buffer).second, "a buffer is added once, and taken out before it goes");
}

void AbortDomain::Remove(UnboundBuffer* buffer) {
  const MutexLock lock(mutex_);
  buffers_.erase(buffer);
}

void AbortDomain::Add(AbortableContext* context) {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(connecting_.insert(context).second, "a context begins to connect once");
}

void AbortDomain::Remove(AbortableContext* context) {
  {
    const MutexLock lock(mutex_);
    connecting_.erase(context);
  }
  none_connecting_.NotifyAll();
}

}  // namespace internal

using internal::AbortableContext;
using internal::AbortDomain;

Result<std::shared_ptr<AbortableDevice>> AbortableDevice::Create(const RankAddress& address) {
  gloo::transport::tcp::attr attributes;
  const bool by_interface = !address.interface_name.empty();
  if (by_interface && if_nametoindex(address.interface_name.c_str()) == 0)
    return Status(StatusCode::kInvalidArgument,
                  "Gloo cannot listen on interface '" + address.interface_name + "': this host has none of that name");
  KINTSUGI_ASSIGN_OR_RETURN(const PortRange ports, PortsOfThisRank());
  (by_interface ? attributes.iface : attributes.hostname) = by_interface ? address.interface_name : address.hostname;
  try {
    const SigpipeGuard guard;  // for the device's own thread, which inherits the mask
    LoopTurns::Device made = LoopTurns::MakeDevice(attributes, ports);
    return std::make_shared<AbortableDevice>(std::move(made.device), std::move(made.turns));
  } catch (const std::exception& e) {
    return Status(StatusCode::kInvalidArgument,
                  "Gloo cannot listen on " +
                      (by_interface ? "interface '" + address.interface_name : "host name '" + address.hostname) +
                      "': name one of this host's (" + e.what() + ")");
  }
}

AbortableDevice::AbortableDevice(std::shared_ptr<gloo::transport::Device> inner, std::shared_ptr<LoopTurns> turns)
    : inner_(std::move(inner)), domain_(std::make_shared<AbortDomain>(std::move(turns))) {}
AbortableDevice::~AbortableDevice() = default;

void AbortableDevice::Abort() { domain_->Abort(); }
bool AbortableDevice::aborted() const { return domain_->aborted(); }
LoopTurns& AbortableDevice::turns() const { return domain_->turns(); }
std::string AbortableDevice::str() const { return "abortable " + inner_->str(); }
const std::string& AbortableDevice::getPCIBusID() const { return inner_->getPCIBusID(); }
int AbortableDevice::getInterfaceSpeed() const { return inner_->getInterfaceSpeed(); }
bool AbortableDevice::hasGPUDirect() const { return inner_->hasGPUDirect(); }

std::shared_ptr<gloo::transport::Context> AbortableDevice::createContext(int rank, int size) {
  return CreateConnecting(rank, size);
}

std::shared_ptr<ConnectingContext> AbortableDevice::CreateConnecting(int rank, int size) {
  domain_->Check();
  return std::make_shared<AbortableContext>(domain_, inner_->createContext(rank, size),
                                            std::dynamic_pointer_cast<GlooPortDevice>(inner_));
}

}  // namespace kintsugi
