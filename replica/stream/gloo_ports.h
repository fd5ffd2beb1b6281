// A TCP device of Gloo whose pairs listen within a range of ports.
//
// Gloo binds a listening socket for every pair, to port 0, until the pair is connected. Here each pair gets a port of
// the range, the next one where that is taken; connected pairs hold none.
//
// Threads: CreatePair calls are made one at a time by the caller; everything else is as with Gloo's own device.
// Errors: CreatePair throws gloo::IoException where no port of the range is free.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <functional>
#include <memory>

#include "runtime/base/port_range.h"

namespace kintsugi {

class GlooPortDevice final : public gloo::transport::tcp::Device {
 public:
  // `attributes` as CreateDeviceAttr gives them. REQUIRES: `ports` is a range.
  GlooPortDevice(const gloo::transport::tcp::attr& attributes, PortRange ports);

  // Makes a pair with `create`, which is tried again for each port until one is free.
  void CreatePair(const std::function<void()>& create);

 private:
  void Use(uint16_t port);

  const PortRange ports_;
  int next_;  // of the range
};

}  // namespace kintsugi
