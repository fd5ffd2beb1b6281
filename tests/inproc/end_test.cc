// The end of a run: when Agent::Run has returned, nothing of the trainer's is called or read any more.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "tests/inproc/reference.h"

namespace kintsugi::inproc {
namespace {

using namespace std::chrono_literals;

// What a trainer's handlers work on, and what it frees as soon as Run has returned. Plain memory on purpose: a handler
// that comes late is an error for AddressSanitizer and ThreadSanitizer, and for this test wherever it is built.
struct Worker {
  std::vector<int> calls = std::vector<int>(16);
};

struct Ends {
  std::array<std::unique_ptr<Worker>, 4> workers;
  std::array<std::atomic<bool>, 4> returned{};
  std::atomic<int> begun{0}, late{0};
};

// `delay`: how long each stop handler dawdles, before and after it touches its worker.
Tweaks Dawdling(Ends& ends, Duration delay) {
  Tweaks tweaks;
  tweaks.before_registration = [&ends](ToyTrainer& t) {
    ends.workers[static_cast<size_t>(t.rank())] = std::make_unique<Worker>();
  };
  tweaks.handler = [&ends, delay](HandlerKind kind, HandlerContext&, ToyTrainer& t) {
    if (kind != HandlerKind::kStop) return Status::Ok();
    const auto self = static_cast<size_t>(t.rank());
    ++ends.begun;
    if (ends.returned[self]) ++ends.late;
    std::this_thread::sleep_for(delay);
    if (ends.returned[self]) ++ends.late;
    if (Worker* worker = ends.workers[self].get()) ++worker->calls[self];
    return Status::Ok();
  };
  tweaks.after_run = [&ends](ToyTrainer& t) {
    const auto self = static_cast<size_t>(t.rank());
    ends.returned[self] = true;
    ends.workers[self].reset();
    std::this_thread::sleep_for(100ms);  // while the agent lives: time for a call that should not come
  };
  return tweaks;
}

class TheEnd : public testing::TestWithParam<int> {};

TEST_P(TheEnd, IsTheEndOfAllHandlers) {
  Ends ends;
  WorldOptions options;
  options.tweaks[-1] = Dawdling(ends, std::chrono::milliseconds(GetParam()));
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(ends.late, 0) << "a stop handler ran after Run had returned";
}

TEST_P(TheEnd, AfterAnIncidentToo) {
  Ends ends;
  WorldOptions options;
  options.tweaks[-1] = Dawdling(ends, std::chrono::milliseconds(GetParam()));
  World world(options);
  world.script().Do(1, 6, Point::kUpdate, Fault::kThrow);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_GE(ends.begun, 4) << "every rank was stopped once";
  EXPECT_EQ(ends.late, 0) << "a stop handler ran after Run had returned";
}

TEST_P(TheEnd, ThatTheControllersLossBringsToo) {
  Ends ends;
  WorldOptions options;
  options.loss_timeout = 200ms;
  options.steps = 1000000;
  options.tweaks[-1] = Dawdling(ends, std::chrono::milliseconds(GetParam()));
  World world(options);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(0, 3, Point::kForward));
  world.StopController();
  world.WaitAll();
  EXPECT_GE(ends.begun, 1) << "who waited in a collective was freed";
  EXPECT_EQ(ends.late, 0) << "a stop handler ran after Run had returned";
}

INSTANTIATE_TEST_SUITE_P(Delay, TheEnd, testing::Values(0, 30));

}  // namespace
}  // namespace kintsugi::inproc
