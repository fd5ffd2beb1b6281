#include "replica/stream/loop_turns.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <utility>

#include "replica/stream/gloo_ports.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

namespace tcp = gloo::transport::tcp;

constexpr std::chrono::nanoseconds kPeriod = std::chrono::microseconds(200);
// Bounded, for threads that wait for a turn without asking for it.
constexpr std::chrono::milliseconds kRestLimit(5);
constexpr std::chrono::milliseconds kHandledLimit(60);

}  // namespace

LoopTurns::LoopTurns() : timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (timer_ < 0) throw std::system_error(errno, std::system_category(), "timerfd_create");
}
LoopTurns::~LoopTurns() { close(timer_); }

LoopTurns::Device LoopTurns::MakeDevice(const tcp::attr& attributes, PortRange ports) {
  auto turns = std::make_shared<LoopTurns>();
  // The deleter keeps the handler until the device's thread is gone.
  const tcp::attr resolved = tcp::CreateDeviceAttr(attributes);
  const std::shared_ptr<tcp::Device> device(
      ports.any() ? new tcp::Device(resolved) : new GlooPortDevice(resolved, ports), [turns](tcp::Device* ending) {
        const Asked asked(*turns);
        delete ending;
      });
  device->registerDescriptor(turns->timer_, EPOLLIN, turns.get());
  return {device, std::move(turns)};
}

void LoopTurns::handleEvents(int) {
  uint64_t expirations;
  // Nothing to read means that it was disarmed meanwhile.
  [[maybe_unused]] const ssize_t size = read(timer_, &expirations, sizeof(expirations));
  MutexLock lock(mutex_);
  ++turns_;
  changed_.NotifyAll();
  if (resting_) changed_.WaitFor(lock, kRestLimit, [this]() KINTSUGI_REQUIRES(mutex_) { return asked_ > 0; });
}

void LoopTurns::AwaitHandled() {
  const Asked turns(*this);
  MutexLock lock(mutex_);
  // The first one may be under way; behind the second all events of the first are through; one more for a long list.
  changed_.WaitFor(lock, kHandledLimit,
                   [this, until = turns_ + 3]() KINTSUGI_REQUIRES(mutex_) { return turns_ >= until; });
}

void LoopTurns::Rest() {
  const MutexLock lock(mutex_);
  if (std::exchange(resting_, true)) return;
  Arm(true);
}

void LoopTurns::Ask() {
  {
    const MutexLock lock(mutex_);
    if (asked_++ == 0 && !resting_) Arm(true);
  }
  changed_.NotifyAll();
}

void LoopTurns::Leave() {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(asked_ > 0, "turns were given back more often than asked for");
  if (--asked_ == 0 && !resting_) Arm(false);
}

void LoopTurns::Arm(bool armed) {
  itimerspec spec{};
  if (armed) spec.it_value.tv_nsec = spec.it_interval.tv_nsec = kPeriod.count();
  KINTSUGI_CHECK(timerfd_settime(timer_, 0, &spec, nullptr) == 0, "a timer that was created can be set");
}

}  // namespace kintsugi
