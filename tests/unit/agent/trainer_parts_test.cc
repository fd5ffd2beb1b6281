// Small parts of the trainer's half: where its thread is, its pass through the loop, what it is busy with, faults that are
// armed, tensors that move; what an offer says of objects.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/agent/activities.h"
#include "runtime/agent/armed_faults.h"
#include "runtime/agent/loop_pass.h"
#include "runtime/agent/step_reports.h"
#include "runtime/agent/tensor_addresses.h"
#include "runtime/agent/trainer_position.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

TEST(TrainerPosition, IsAfterATaskWhereItWasBefore) {
  for (const TrainerAt before : {TrainerAt::kParked, TrainerAt::kAtSavePoint}) {
    TrainerPosition position;
    position.Go(before);
    position.BeginTask(core::Phase::kRepair);
    EXPECT_EQ(position.at(), TrainerAt::kInTask);
    EXPECT_EQ(position.phase(), core::Phase::kRepair);
    position.EndTask();
    EXPECT_EQ(position.at(), before);
    EXPECT_EQ(position.phase(), std::nullopt);
  }
}

TEST(TrainerPosition, BeginsTasksWhereTheyAreTaken) {
  TrainerPosition position;
  EXPECT_THROW(position.BeginTask(core::Phase::kClean), CheckFailure);
  EXPECT_THROW(position.EndTask(), CheckFailure);
  EXPECT_EQ(position.Misplaced("NextTask").message(),
            "NextTask while the trainer is outside the guard: BeginGuard comes first");
}

// What a launcher finds in the page since it looked last: step and loss.
std::vector<std::pair<uint64_t, double>> Found(ReportReader& reader) {
  std::vector<std::pair<uint64_t, double>> found;
  reader.Read([&](const StepReport& report) { found.emplace_back(report.step, report.loss); });
  return found;
}

TEST(StepReports, GoAsTheGateIsEnteredAndOfARefusedStepNever) {
  RankPage page;
  ASSERT_TRUE(page.Open(-1).ok());
  Gate gate;
  gate.Open(page.words());
  gate.Release(Step(0));
  StepReports reports(page, gate);
  reports.Open();
  ReportReader launcher(page.words().reports);
  using Reports = std::vector<std::pair<uint64_t, double>>;
  reports.Begin();
  ASSERT_TRUE(reports.Note(Step(1), 0.5, {}).ok());
  ASSERT_TRUE(reports.Note(Step(1), 0.25, {}).ok());
  EXPECT_EQ(Found(launcher), Reports());
  reports.Send(Step(1));
  reports.Send(Step(1));
  EXPECT_EQ(Found(launcher), (Reports{{1, 0.25}})) << "the newest, and once";
  core::GateWord found;
  uint64_t word = 0;
  ASSERT_TRUE(gate.Enter(Step(1), core::GateState::kUpdating, &found));
  ASSERT_TRUE(reports.Note(Step(1), 0.125, {}).ok());
  EXPECT_EQ(Found(launcher), (Reports{{1, 0.125}})) << "told behind its gate it counts, too";
  ASSERT_TRUE(gate.Commit(Step(1), nullptr, &word));
  reports.Begin();
  ASSERT_TRUE(reports.Note(Step(2), 9, {}).ok());
  reports.Begin();  // it was refused, and is left out
  reports.Send(Step(2));
  EXPECT_EQ(Found(launcher), Reports());
  const std::vector<uint64_t> many(ReportRing::kMaxSamples + 1);
  EXPECT_EQ(reports.Note(Step(2), 0, many).code(), StatusCode::kInvalidArgument);
}

TEST(LoopPass, BelongsToTheThreadThatCalledFirst) {
  LoopPass pass;
  pass.OnRelease({Generation(1), Step(4)});
  pass.Begin();
  EXPECT_TRUE(pass.CheckThread("BeginStep").ok());
  Status other;
  bool is_its = true;
  const auto ask = [&] {
    other = pass.CheckThread("BeginStep");
    is_its = pass.IsItsThread();
  };
  std::thread(ask).join();
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(is_its);
  pass.Begin();
  std::thread(ask).join();
  EXPECT_TRUE(other.ok()) << "the next pass may be another thread's";
  EXPECT_FALSE(pass.CheckThread("BeginStep").ok());
}

TEST(LoopPass, BeginsAStepOnceAndTellsItsFirst) {
  LoopPass pass;
  EXPECT_FALSE(pass.ever_released());
  EXPECT_FALSE(pass.TellResumed());
  EXPECT_THROW(pass.Begin(), CheckFailure);
  pass.OnRelease({Generation(1), Step(4)});
  pass.Begin();
  EXPECT_TRUE(pass.BeginStep(Step(5)));
  EXPECT_TRUE(pass.TellResumed());
  EXPECT_EQ(pass.BeginCollective(), 1);
  EXPECT_EQ(pass.BeginCollective(), 2);
  EXPECT_FALSE(pass.BeginStep(Step(5)));
  EXPECT_TRUE(pass.BeginStep(Step(6)));
  EXPECT_FALSE(pass.TellResumed());
  EXPECT_EQ(pass.BeginCollective(), 1);
  pass.Begin();
  EXPECT_TRUE(pass.BeginStep(Step(6)));
  EXPECT_TRUE(pass.TellResumed());
}

TEST(Activities, NestAndAreShownInThePage) {
  RankPage page;
  ASSERT_TRUE(page.Open(-1).ok());
  ActivityClock clock;
  Activities activities(page, clock);
  const auto shown = [&] { return UnpackProgress(page.words().progress.load()).activity; };
  ASSERT_TRUE(activities.Begin(Activity::kEval).ok());
  ASSERT_TRUE(activities.Begin(Activity::kWait).ok());
  EXPECT_EQ(shown(), Activity::kWait);
  ASSERT_TRUE(activities.End().ok());
  EXPECT_EQ(shown(), Activity::kEval);
  activities.Clear();
  EXPECT_EQ(activities.now(), Activity::kNone);
  EXPECT_EQ(activities.End().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(activities.Begin(Activity::kNone).code(), StatusCode::kInvalidArgument);
}

TEST(Activities, SaySinceWhenAndTheNearestLimitThatIsSet) {
  RankPage page;
  ASSERT_TRUE(page.Open(-1).ok());
  ActivityClock clock;
  Activities activities(page, clock);
  const TimePoint before = SteadyClock::SteadyNow();
  const auto busy = [&](Activity activity, Duration after) {
    return clock.IsBusy(activity, std::chrono::hours(1), before + after);
  };
  ASSERT_TRUE(activities.Begin(Activity::kSection).ok());
  EXPECT_TRUE(busy(Activity::kSection, std::chrono::hours(100))) << "as long as it takes";
  EXPECT_FALSE(busy(Activity::kWait, Duration())) << "who waits is in its step";
  ASSERT_TRUE(activities.Begin(Activity::kEval, std::chrono::hours(2)).ok());
  EXPECT_FALSE(busy(Activity::kEval, std::chrono::minutes(90))) << "longer than activities may take";
  ASSERT_TRUE(activities.Begin(Activity::kSection, std::chrono::hours(5)).ok());
  EXPECT_TRUE(busy(Activity::kSection, std::chrono::minutes(119)));
  EXPECT_FALSE(busy(Activity::kSection, std::chrono::minutes(121))) << "what lies around it has a limit";
  ASSERT_TRUE(activities.End().ok() && activities.End().ok());
  EXPECT_TRUE(busy(Activity::kSection, std::chrono::hours(100)));
  activities.Clear();
  EXPECT_EQ(clock.Read().deadline, TimePoint::Max());
}

TEST(ArmedFaults, AreTakenOnceAndAreThisRanksOwn) {
  ArmedFaults armed;
  armed.Arm("7 kill:2@5:update", Rank(1));
  armed.Arm("nonsense", Rank(1));
  EXPECT_FALSE(armed.any());
  armed.Arm("8 kill:1@5:update", Rank(1));
  ASSERT_TRUE(armed.any());
  const auto here = [](const Injection& fault) { return fault.phase == TrainPhase::kUpdate; };
  EXPECT_FALSE(armed.Take(Step(4), here));
  EXPECT_FALSE(armed.Take(Step(5), [](const Injection&) { return false; }));
  const auto taken = armed.Take(Step(5), here);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->id, 8u);
  EXPECT_FALSE(armed.any());
  EXPECT_FALSE(armed.Take(Step(5), here));
}

// ---- tensors that move -------------------------------------------------------------------------------------------------

struct OneTensor {
  OneTensor() {
    tensor.key = "w";
    tensor.global_shape = tensor.local_shape = {8};
    tensor.global_offset = {0};
    tensor.memory.data = old_place.data();
    tensor.memory.size_bytes = 8 * DTypeSize(tensor.dtype);
    EXPECT_TRUE(registered.AddTensor(tensor).ok());
    registered.Seal();
    tensor.memory.data = new_place.data();
  }
  const void* place() const { return registered.registry().tensors().at("w").memory.data; }
  std::vector<uint8_t> old_place = std::vector<uint8_t>(64), new_place = std::vector<uint8_t>(64);
  ShardedTensor tensor;
  Membership self;
  Registration registered{self};
  TensorAddresses addresses{registered};
};

TEST(Registration, TellsTheObjectThatKeepsOthersFromComing) {
  Membership self;
  self.options.world_size = 2;
  Registration registered{self};
  const auto add = [&](const char* key, TakeOver take_over) {
    ShardedObject object;
    object.key = key;
    object.kind = ObjectKind::kMirrored;
    object.take_over = take_over;
    object.capture = [](void*, std::vector<uint8_t>*) {};
    object.restore = [](void*, const uint8_t*, uint64_t) { return Status::Ok(); };
    if (take_over == TakeOver::kOwn)
      object.take_over_all = [](void*, const std::vector<SavedObject>&, std::vector<uint8_t>*) { return Status::Ok(); };
    return registered.AddObject(object);
  };
  ASSERT_TRUE(registered.SetOffer({self.options.rank}, {1, 2}).ok());
  ASSERT_TRUE(add("alike", TakeOver::kRankZero).ok() && add("made", TakeOver::kDerived).ok());
  EXPECT_EQ(registered.offer().own_object, "");
  ASSERT_TRUE(add("of all", TakeOver::kOwn).ok());
  EXPECT_EQ(registered.offer().own_object, "of all");
  ASSERT_TRUE(registered.SetHandsOverObjects().ok());
  EXPECT_EQ(registered.offer().own_object, "");
  ASSERT_TRUE(add("its own", TakeOver::kSameRank).ok());
  EXPECT_EQ(registered.offer().own_object, "its own");
}

TEST(TensorAddresses, CountOnceTheTaskIsOver) {
  OneTensor one;
  EXPECT_FALSE(one.addresses.Settle());
  one.addresses.Begin();
  ASSERT_TRUE(one.addresses.Move(one.tensor).ok());
  EXPECT_TRUE(one.addresses.moving());
  EXPECT_EQ(one.place(), one.old_place.data());
  EXPECT_TRUE(one.addresses.Settle());
  EXPECT_EQ(one.place(), one.new_place.data());
  EXPECT_FALSE(one.addresses.moving());
  one.addresses.Begin();
  ASSERT_TRUE(one.addresses.Remove("w").ok());
  EXPECT_TRUE(one.addresses.Holds("w"));
  EXPECT_TRUE(one.addresses.Settle());
  EXPECT_FALSE(one.addresses.Holds("w"));
}

TEST(TensorAddresses, MoveBetweenBeginAndSettle) {
  OneTensor one;
  EXPECT_THROW((void)one.addresses.Move(one.tensor), CheckFailure);
  EXPECT_THROW((void)one.addresses.Remove("w"), CheckFailure);
  one.addresses.Begin();
  EXPECT_THROW(one.addresses.Begin(), CheckFailure);
}

TEST(TensorAddresses, GiveNoFreshMemoryWhileTensorsMove) {
  OneTensor one;
  one.addresses.Begin();
  EXPECT_EQ(one.addresses.Renew({}).status().message(), "tensors were about to move");
  (void)one.addresses.Settle();
  EXPECT_EQ(one.addresses.Renew({{1, 4}}).status().message(),
            "the damage is not within whole pages of registered tensors");
}

}  // namespace
}  // namespace kintsugi
