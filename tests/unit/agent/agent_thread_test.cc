// The agent's thread: one thread steps the core, and what is thrown on it does not end it.
#include "runtime/agent/agent_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <vector>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

class Recorder final : public Actor {
 public:
  void Act(const core::AgentAction& action) override { actions.push_back(action); }
  void OnThrown(const std::string& what) override { thrown.push_back(what); }
  std::vector<core::AgentAction> actions;
  std::vector<std::string> thrown;
};

struct Running {
  Running() {
    thread.Start(actor);
    thread.Call([this] { thread.BeginCore({Rank(0), Incarnation(1), Term(1), Generation(1), false}); });
  }
  // Everything that was posted before has run.
  void Settle() {
    std::promise<void> done;
    thread.Call([&] { done.set_value(); });
    done.get_future().wait();
  }
  Recorder actor;
  AgentThread thread;
};

TEST(AgentThread, CarriesOutWhatTheCoreDecides) {
  Running running;
  core::Ready ready;
  ready.warning = "told";
  running.thread.PostReady(ready);
  running.thread.Post(core::TrainerParked{core::TrainerParked::Outcome::kReady, {}, {}});
  running.Settle();
  ASSERT_EQ(running.actor.actions.size(), 1u);
  const auto* sent = std::get_if<core::SendMessage>(&running.actor.actions[0]);
  ASSERT_TRUE(sent);
  EXPECT_TRUE(std::holds_alternative<core::Ready>(sent->message));
}

TEST(AgentThread, GoesOnAfterWhatIsThrownOnIt) {
  Running running;
  running.thread.Call([] { throw std::runtime_error("planted"); });
  running.Settle();
  running.thread.Call([&] { running.thread.BeginCore({Rank(0), Incarnation(1), Term(1), Generation(1), false}); });
  running.Settle();
  ASSERT_EQ(running.actor.thrown.size(), 2u);
  EXPECT_EQ(running.actor.thrown[0], "planted");
  EXPECT_NE(running.actor.thrown[1].find("a rank joins once"), std::string::npos);
}

TEST(AgentThread, AloneStepsTheCore) {
  Running running;
  running.Settle();
  EXPECT_THROW(running.thread.Step(core::TrainerResumed{}), CheckFailure);
  AgentThread none;
  EXPECT_THROW(none.Step(core::TrainerResumed{}), CheckFailure);
}

TEST(AgentThread, RunsWhatIsLastAndNothingAfterIt) {
  Running running;
  bool last = false, after = false;
  running.thread.Stop([&] { last = true; });
  running.thread.Call([&] { after = true; });
  EXPECT_TRUE(last);
  EXPECT_FALSE(after);
  EXPECT_FALSE(running.thread.started());
}

}  // namespace
}  // namespace kintsugi
