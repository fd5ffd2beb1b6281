// AbortableDevice: a Gloo device whose collectives can be stopped from another thread within a millisecond.
//
// A Gloo collective that waits for a dead or stopped peer waits for its context's timeout, and closing its pairs wakes
// nobody. This device decorates a TCP device: contexts created with it wrap every unbound buffer, and Abort ends the
// wait of each of them. All collectives that take an options object (`gloo::allreduce(opts)` and its like) build their
// buffers through the context and become abortable with nothing else changed; the old algorithm classes use bound
// buffers and do not.
// A peer's death does not raise SIGPIPE here, although Gloo writes without MSG_NOSIGNAL (see sigpipe_guard.h).
// Connecting is covered too: a pair that waits for a peer which published its address and then died is closed,
// kConnectGrace after the Abort.
//
// Threads: Abort may come from any thread at any moment, more than once. The flag is sticky: everything created with
// the device, now or later, fails. Use one device per generation (several groups may share it) and drop it afterwards.
// Errors: an aborted wait throws GlooAborted; Gloo's other exceptions pass unchanged.
// Ownership: contexts keep the device's core alive; the device may be dropped before them.
#pragma once

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "replica/stream/rank_address.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

struct KINTSUGI_EXPORT GlooAborted : public gloo::IoException {
  using gloo::IoException::IoException;
};

class LoopTurns;
namespace internal {
class AbortDomain;
}

// Abort ends a connection that is still being made this much later, and a rank that gives up connecting keeps its
// listeners this long: Gloo of 2022 ends a process whose connection is reset between accept or connect and getpeername.
// Until then, what was on its way is through, and peers that were aborted too dial no more.
constexpr std::chrono::milliseconds kConnectGrace(20);

// A context whose pairs are being connected, one at a time.
class ConnectingContext : public gloo::transport::Context {
 public:
  using gloo::transport::Context::Context;
  // Dials, or waits to be dialed. Throws GlooAborted, and what Gloo throws.
  virtual void ConnectPair(int peer, const std::vector<char>& address) = 0;
  // From here on the buffers' waits are what Abort ends.
  virtual void Connected() = 0;
};

class KINTSUGI_EXPORT AbortableDevice final : public gloo::transport::Device {
 public:
  // Listens on ports of KINTSUGI_PORTS ("A-B") where the environment names them, as a launcher with --ports does.
  // kInvalidArgument where the address, or that, cannot be used.
  static Result<std::shared_ptr<AbortableDevice>> Create(const RankAddress& address = {});

  AbortableDevice(std::shared_ptr<gloo::transport::Device> inner, std::shared_ptr<LoopTurns> turns);
  ~AbortableDevice() override;

  void Abort();
  bool aborted() const;
  // For threads that wait for the device's loop.
  LoopTurns& turns() const;

  std::string str() const override;
  const std::string& getPCIBusID() const override;
  int getInterfaceSpeed() const override;
  bool hasGPUDirect() const override;
  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override;
  std::shared_ptr<ConnectingContext> CreateConnecting(int rank, int size);

 private:
  std::shared_ptr<gloo::transport::Device> inner_;
  std::shared_ptr<internal::AbortDomain> domain_;
};

}  // namespace kintsugi
