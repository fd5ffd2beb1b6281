// WholeAgent: an agent's parts, the real ones, wired as an agent wires them, with no controller behind them: what its core
// decides is written down, and where a test wants that, carried out as an agent does.
//
// Threads: the test's is the trainer's; the agent's own runs beside it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/agent/shared_parts.h"
#include "runtime/agent/thread_half.h"
#include "runtime/agent/trainer_half.h"

namespace kintsugi {

using namespace std::chrono_literals;
using core::FaultKind;
using core::GateState;
using core::StateMark;
using ::testing::HasSubstr;

// What the core decides is written down; of its orders those to stop the trainer are carried out, or all of them.
struct Recorder final : Actor {
  void Act(const core::AgentAction& action) override {
    actions.push_back(action);
    if (const auto* sent = std::get_if<core::SendMessage>(&action)) messages.push_back(sent->message);
    if (orders) orders->Act(action);
    if (const auto* sent = std::get_if<core::SendMessage>(&action)) on_sent(sent->message);
    if (orders) return;
    if (const auto* stop = std::get_if<core::Interrupt>(&action)) on_stop(stop->verdict);
  }
  void OnThrown(const std::string& what) override { thrown.push_back(what); }
  std::vector<core::AgentAction> actions;
  std::vector<core::AgentMessage> messages;
  std::vector<std::string> thrown;
  Orders* orders = nullptr;  // to carry out all of it
  std::function<void(const core::AgentMessage&)> on_sent = [](const core::AgentMessage&) {};
  std::function<void(const core::StopOrder&)> on_stop = [](const core::StopOrder&) {};
};

// A service that takes whatever is due.
struct Snapshots final : SnapshotService {
  void Prepare(const Session&, const SnapshotOrder& order) override { prepared.push_back(order.step); }
  void Take(Step step) override { taken.push_back(step); }
  void Abort() override { ++aborts; }
  void Stop() override {}
  std::vector<Step> prepared, taken;
  int aborts = 0;
};

// A state plane that writes down what it is asked for, and fails or throws where it is told to.
struct Plane final : StateService {
  Status Open(HandlerContext& call) override {
    opened.push_back(call.generation);
    if (throws) throw std::runtime_error("planted in the plane");
    return answer;
  }
  Status Mirror(Step step, const MirroredObjects& mine) override {
    mirrored.emplace_back(step, TextOf(mine));
    return answer;
  }
  void Refresh(Step step, const MirroredObjects& mine) override { refreshed.emplace_back(step, TextOf(mine)); }
  Result<MirroredObjects> Mirrored(Step step) const override {
    const auto found = known.find(step);
    if (found == known.end()) return Status(StatusCode::kNotFound, "nothing is known of step " + step.ToString());
    const std::string& text = found->second;
    return MirroredObjects{{"o", std::make_shared<std::vector<uint8_t>>(text.begin(), text.end())}};
  }
  std::vector<RankObjects> KnownMirrored(Step) const override { return {}; }
  void TakeMirrored(Step, std::vector<RankObjects>) override {}
  Result<std::map<int, StateDigest>> Digests(CancelToken&) override {
    if (!answer.ok()) return answer;
    return digests;
  }
  void AwaitQuiet() override {}
  void SetNext(const StateRegistry*) override {}
  void Abort() override { ++aborts; }

  static std::string TextOf(const MirroredObjects& objects) {
    std::string text;
    for (const MirroredObject& object : objects) text.append(object.bytes->begin(), object.bytes->end());
    return text;
  }
  using Told = std::vector<std::pair<Step, std::string>>;
  Status answer;
  bool throws = false;
  std::vector<Generation> opened;
  Told mirrored, refreshed;
  std::map<Step, std::string> known;
  std::map<int, StateDigest> digests;
  std::atomic<int> aborts{0};  // on the agent's thread
};

class WholeAgent : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(shared.page.Open(-1).ok());
    shared.gate.Open(shared.page.words());
    ShardedTensor w;
    w.key = "w";
    w.dtype = DType::kFloat32;
    w.global_shape = w.local_shape = {4};
    w.global_offset = {0};
    w.memory.data = numbers;
    w.memory.size_bytes = sizeof(numbers);
    ASSERT_TRUE(shared.registered.AddTensor(w).ok());
    on.thread.Start(actor);
    on.thread.Call([this] { on.thread.BeginCore({Rank(0), Incarnation(1), Term(1), Generation(1), false}); });
  }
  void TearDown() override {
    if (opened) on.stop.Close();
    on.Stop();
    EXPECT_THAT(actor.thrown, ::testing::IsEmpty());
  }

  void Begin() {
    shared.registered.Seal();
    shared.registered.Begin();
  }
  void Tell(core::ControllerMessage message, Generation generation = Generation(1)) {
    on.thread.Post(core::FromController{{Term(1), generation, Rank(0), Incarnation(1)}, std::move(message)});
  }
  // The trainer's loop runs from `step` on, and nothing is remembered of what was told before.
  void GoOn(uint64_t step) {
    Begin();
    on.thread.Post(core::TrainerParked{core::TrainerParked::Outcome::kInterrupted, shared.gate.Word(), {}});
    Tell(core::ResumeOrder{Step(step)});
    Settle();
    shared.gate.Release(Step(step));
    shared.page.Mark(StateMark::kWhole);
    trainer.reports.BeginPass();
    actor.messages.clear();
  }
  // The trainer's thread stands in step `step`, at that state of its gate.
  void Stand(uint64_t step, GateState state) {
    shared.page.words().progress = PackProgress(step, TrainPhase::kUpdate);
    if (state != GateState::kCommitted) shared.gate.MoveTo(state, Step(step));
  }
  // All that was posted before has run.
  void Settle() {
    Look([] {});
  }
  // On the agent's thread, which alone writes down what is told.
  void Look(const std::function<void()>& look) {
    std::promise<void> done;
    on.thread.Call([&] {
      look();
      done.set_value();
    });
    done.get_future().wait();
  }
  template <typename Message>
  std::vector<Message> All() {
    std::vector<Message> all;
    Look([&] {
      for (const core::AgentMessage& message : actor.messages)
        if (const auto* one = std::get_if<Message>(&message)) all.push_back(*one);
    });
    return all;
  }
  // Once there is one.
  template <typename Message>
  std::vector<Message> Await() {
    for (const TimePoint until = SteadyClock::SteadyNow() + 60s; SteadyClock::SteadyNow() < until;) {
      if (std::vector<Message> found = All<Message>(); !found.empty()) return found;
      std::this_thread::sleep_for(1ms);
    }
    ADD_FAILURE() << "nothing was told";
    return {{}};
  }
  StateMark mark() { return static_cast<StateMark>(shared.page.words().state_mark.load()); }

  static AgentOptions Options() {
    AgentOptions options;
    options.rank = Rank(0);
    return options;
  }

  float numbers[4] = {};
  bool opened = false;
  Recorder actor;
  SharedParts shared{Options(), NullLogSink(), [](Generation, core::AgentMessage) {}};
  ThreadHalf on{shared};
  TrainerHalf trainer{shared, on};
};

// An agent whose guard has begun, so that tasks are pulled from it, and what its core decides is carried out.
class GuardedAgent : public WholeAgent {
 protected:
  // Everything that a trainer registers; before the guard begins.
  void Register() {
    ASSERT_TRUE(shared.registered.SetLayout(0, {Rank(0)}, 1).ok());
    ASSERT_TRUE(shared.registered.SetStateService(plane).ok());
    for (const HandlerKind kind : {HandlerKind::kStop, HandlerKind::kClean, HandlerKind::kRebuildGroup,
                                   HandlerKind::kRollback, HandlerKind::kExit})
      Handle(kind, [](HandlerContext&, void*) { return Status::Ok(); });
  }
  void Handle(HandlerKind kind, HandlerFunction function) {
    ASSERT_TRUE(shared.registered.SetHandler(kind, function, this).ok());
  }
  // One mirrored object, which is `object`.
  void Mirror() {
    ShardedObject one;
    one.key = "o";
    one.kind = ObjectKind::kMirrored;
    one.take_over = TakeOver::kRankZero;
    one.context = &object;
    one.capture = [](void* text, std::vector<uint8_t>* out) {
      out->insert(out->end(), static_cast<std::string*>(text)->begin(), static_cast<std::string*>(text)->end());
    };
    one.restore = [](void* text, const uint8_t* bytes, uint64_t size_bytes) {
      static_cast<std::string*>(text)->assign(bytes, bytes + size_bytes);
      return Status::Ok();
    };
    ASSERT_TRUE(shared.registered.AddObject(one).ok());
  }
  void CarryOutAll() {
    Look([this] { actor.orders = &on.orders; });
  }
  void BeginGuard() {
    Register();
    CarryOutAll();
    const Status begun = trainer.guard.Begin(/*pulled=*/true);
    ASSERT_TRUE(begun.ok()) << begun.ToString();
    opened = true;
    Settle();
  }
  // What the guard asks for now, once all that was posted has run.
  GuardTask Next() {
    Settle();
    const Result<GuardTask> task = trainer.guard.NextTask(SteadyClock::SteadyNow());
    EXPECT_TRUE(task.ok()) << task.status().ToString();
    return task.ok() ? *task : GuardTask{};
  }
  // The loop runs from the step behind this one on.
  void EnterLoop(uint64_t step) {
    Tell(core::ResumeOrder{Step(step)});
    const GuardTask task = Next();
    ASSERT_EQ(task.kind, TaskKind::kLoop);
    ASSERT_EQ(task.step, Step(step));
  }
  GuardTask Order(core::PhaseOrder order, Generation generation = Generation(1)) {
    Tell(std::move(order), generation);
    return Next();
  }
  static core::PhaseOrder Of(core::Phase phase, uint64_t step = 4) {
    core::PhaseOrder order;
    order.phase = phase;
    order.step = Step(step);
    order.limit = 1h;
    return order;
  }
  // What the controller was told last of a task.
  core::PhaseDone Answered() {
    const auto all = All<core::PhaseDone>();
    EXPECT_FALSE(all.empty()) << "no task was answered";
    return all.empty() ? core::PhaseDone{} : all.back();
  }

 public:
  std::shared_ptr<Plane> plane = std::make_shared<Plane>();
  std::string object = "as registered";
  std::atomic<int> calls{0};  // of a handler that counts
};

}  // namespace kintsugi
