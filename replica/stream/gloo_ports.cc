#include "replica/stream/gloo_ports.h"

#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <netinet/in.h>
#include <unistd.h>

#include <memory>

#include "runtime/base/check.h"

namespace kintsugi {

using gloo::transport::tcp::attr;

// Ranks of a host begin in different places, so that they seldom ask for the same port.
GlooPortDevice::GlooPortDevice(const attr& attributes, PortRange ports)
    : Device(attributes),
      ports_(ports),
      next_(static_cast<int>((static_cast<int64_t>(getpid()) * 97) % ports.size())) {}

void GlooPortDevice::Use(uint16_t port) {
  KINTSUGI_CHECK(port >= ports_.first && port - ports_.first < ports_.size(), "a port is one of the range");
  attr with_port = attr_;
  auto* const address = reinterpret_cast<sockaddr*>(&with_port.ai_addr);
  if (address->sa_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  // The base's member is const; it is part of an object that is not, and so it may be replaced as a whole.
  std::destroy_at(&attr_);
  std::construct_at(const_cast<attr*>(&attr_), with_port);
}

void GlooPortDevice::CreatePair(const std::function<void()>& create) {
  for (int tries = 0; tries < ports_.size(); ++tries) {
    Use(static_cast<uint16_t>(ports_.first + next_));
    next_ = (next_ + 1) % ports_.size();
    try {
      return create();
    } catch (const gloo::IoException&) {
    } catch (const gloo::EnforceNotMet&) {
    }
  }
  throw gloo::IoException("no port of " + ports_.ToString() +
                          " is free for a connection between ranks: KINTSUGI_PORTS");
}

}  // namespace kintsugi
