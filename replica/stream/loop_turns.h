// LoopTurns: turns of a Gloo device's loop for threads that wait for one.
//
// Gloo takes a descriptor out of its loop by waiting until the loop has gone round once, and a loop without events goes
// round every 10 ms. Dialing a pair costs one such wait, ending a pair one, ending the device one. While somebody asks
// for turns, a timer descriptor in the device's own loop makes it go round every kPeriod; at all other times it costs
// nothing. A descriptor that is always ready would be faster still, and starves 32 processes on two cores.
// The opposite too: once a device was aborted, bytes that arrive for a buffer which is gone keep its loop turning in
// circles, at the cost of a core, until their pair is closed. Rest keeps the loop still unless somebody asks for turns.
//
// Threads: Asked may be made and dropped, and Rest called, on any thread.
// Ownership: lives as long as its device (see MakeDevice).
// Errors: MakeDevice throws what Gloo and the system throw.
#pragma once

#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>

#include <cstdint>
#include <memory>

#include "runtime/base/mutex.h"
#include "runtime/base/port_range.h"

namespace kintsugi {

class LoopTurns final : public gloo::transport::tcp::Handler {
 public:
  LoopTurns();
  ~LoopTurns() override;
  LoopTurns(const LoopTurns&) = delete;
  LoopTurns& operator=(const LoopTurns&) = delete;

  // While one of these lives the loop goes round often.
  class Asked {
   public:
    explicit Asked(LoopTurns& turns) : turns_(turns) { turns_.Ask(); }
    ~Asked() { turns_.Leave(); }
    Asked(const Asked&) = delete;
    Asked& operator=(const Asked&) = delete;

   private:
    LoopTurns& turns_;
  };

  struct Device {
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<LoopTurns> turns;
  };
  // A TCP device whose loop has turns. Ending it asks for them too: joining its thread waits for one.
  // Where `ports` is a range it is a GlooPortDevice, whose pairs keep to it.
  static Device MakeDevice(const gloo::transport::tcp::attr& attributes, PortRange ports = {});

  // Returns when everything that was ready before has been handled, or after a limit of 60 ms.
  void AwaitHandled();

  // From now on the loop goes round only while somebody asks for turns, and else every few milliseconds.
  void Rest();

  // On the device's thread.
  void handleEvents(int events) override;

 private:
  void Ask();
  void Leave();
  void Arm(bool armed);

  const int timer_;
  Mutex mutex_;
  CondVar changed_;
  int asked_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  bool resting_ KINTSUGI_GUARDED_BY(mutex_) = false;
  uint64_t turns_ KINTSUGI_GUARDED_BY(mutex_) = 0;
};

}  // namespace kintsugi
