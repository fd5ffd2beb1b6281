// Steps that are refused: by whom and when, what all make of it, and who gives way.
#include "runtime/agent/refusals.h"

#include <cmath>
#include <limits>

#include "runtime/core/store_operation.h"
#include "tests/unit/agent/whole_agent.h"

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a world of one rank sets and gets.
struct OwnStore final : Store {
  Status Set(const std::string& key, const std::vector<uint8_t>& value) override {
    values[key] = value;
    return Status::Ok();
  }
  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint) override {
    for (const auto& [there, value] : values) {
      if (there == key) return value;
      if (core::StoreOperation::PresenceKey(there) == key) return std::vector<uint8_t>{'1'};
    }
    return std::vector<uint8_t>{'0'};
  }
  std::map<std::string, std::vector<uint8_t>> values;
};

class RefusalsOfAnAgent : public WholeAgent {
 protected:
  // Refusals are made with the agent, from its options: those of a run with this --veto.
  Refusals& With(const std::string& veto, int most = 2) {
    shared.self.options.veto = veto;
    shared.self.options.incarnation = Incarnation(1);
    own.emplace(shared.self, shared.registered, shared.gate, trainer.reports, NullLogSink());
    if (most >= 0) {
      EXPECT_TRUE(own->Allow(most).ok());
    }
    GoOn(4);
    return *own;
  }
  // One incident that goes on from `step`, of this rank alone.
  std::string Incident(Refusals& refusals, uint64_t step) {
    OwnStore store;
    CancelToken never;
    HandlerContext call;
    call.world_size = 1;
    call.generation = Generation(2);
    call.step = Step(step);
    call.deadline = SteadyClock::SteadyNow() + 1h;
    call.cancel = &never;
    call.store = &store;
    EXPECT_TRUE(refusals.Tell(call).ok());
    EXPECT_TRUE(refusals.Hear(call).ok());
    refusals.GoOn();
    return call.remark;
  }
  // The step is made, and found to be bad by these numbers.
  void RefuseOnce(Refusals& refusals, uint64_t step, uint64_t number, uint64_t back = 0) {
    ASSERT_TRUE(refusals.BeginStep(Step(step)).ok());
    refusals.NoteComputed("grad", number);
    ASSERT_EQ(refusals.Reject(Step(step), "a loss of 1e9", back, false).code(), StatusCode::kInternal);
  }

  std::optional<Refusals> own;
};

TEST_F(RefusalsOfAnAgent, AreNothingWithoutThatTheyAreAllowed) {
  Refusals& refusals = With("", -1);
  EXPECT_TRUE(refusals.BeginStep(Step(5)).ok());
  EXPECT_TRUE(refusals.PassGate(Step(5)).ok());
  EXPECT_FALSE(refusals.allowed());
  EXPECT_THAT(refusals.Reject(Step(5), "bad", 0, false).message(), HasSubstr("without AllowRejects"));
  HandlerContext no_store;  // which a rank that tells nothing does not touch
  EXPECT_TRUE(refusals.Tell(no_store).ok());
  EXPECT_TRUE(refusals.Hear(no_store).ok());
}

TEST_F(RefusalsOfAnAgent, AreAllowedBeforeTheGuardBegins) {
  Refusals& refusals = With("", -1);
  EXPECT_EQ(refusals.Allow(2).code(), StatusCode::kFailedPrecondition);
  Membership self;
  Registration registered{self};
  Refusals early(self, registered, shared.gate, trainer.reports, NullLogSink());
  EXPECT_EQ(early.Allow(-1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(early.Allow(0).ok());
}

TEST_F(RefusalsOfAnAgent, NameTheProgramThatWouldNotHearOfARule) {
  EXPECT_THAT(With("nan", -1).CheckRules().message(), HasSubstr("AllowRejects"));
  EXPECT_TRUE(own->CheckRules().code() == StatusCode::kFailedPrecondition);
}

TEST_F(RefusalsOfAnAgent, ComeBeforeTheGateOfTheirStepAlone) {
  Refusals& refusals = With("");
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  EXPECT_EQ(refusals.Reject(Step(6), "bad", 0, false).code(), StatusCode::kFailedPrecondition);
  shared.gate.MoveTo(GateState::kUpdating, Step(5));
  EXPECT_THAT(refusals.Reject(Step(5), "bad", 0, false).message(), HasSubstr("before it changes anything"));
  shared.gate.MoveTo(GateState::kCommitted, Step(4));
  const Status refused = refusals.Reject(Step(5), "bad", 0, false);
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_EQ(refused.message(), "step 5 is refused: bad");
  EXPECT_THAT(refusals.PassGate(Step(5)).message(), HasSubstr("step 5 is refused")) << "a trainer that goes on anyway";
}

TEST_F(RefusalsOfAnAgent, AreAnEchoWhereAnIncidentHasBegun) {
  Refusals& refusals = With("");
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  (void)shared.gate.Lock();
  EXPECT_EQ(refusals.Reject(Step(5), "bad", 0, false).code(), StatusCode::kInterrupted);
  EXPECT_EQ(refusals.PassGate(Step(5)).code(), StatusCode::kInterrupted);
}

TEST_F(RefusalsOfAnAgent, LeaveOutWhatIsRefusedTwiceByTheSameNumbers) {
  Refusals& refusals = With("");
  RefuseOnce(refusals, 5, 77);
  EXPECT_THAT(Incident(refusals, 4), HasSubstr("a loss of 1e9"));
  EXPECT_EQ(refusals.LeftOut(Step(5)), nullptr) << "it is made again";
  RefuseOnce(refusals, 5, 77);
  (void)Incident(refusals, 4);
  ASSERT_NE(refusals.LeftOut(Step(5)), nullptr);
  EXPECT_THAT(*refusals.LeftOut(Step(5)), HasSubstr("a loss of 1e9"));
  EXPECT_EQ(refusals.NextLeftOut(Step(3)), Step(5));
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  EXPECT_TRUE(refusals.PassGate(Step(5)).ok()) << "an empty update";
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  refusals.NoteComputed("grad", 77);
  EXPECT_THAT(refusals.PassGate(Step(5)).message(), HasSubstr("this one has computed it"));
}

TEST_F(RefusalsOfAnAgent, LeaveOutNoMoreThanMayBe) {
  Refusals& refusals = With("", 0);
  RefuseOnce(refusals, 5, 77);
  (void)Incident(refusals, 4);
  RefuseOnce(refusals, 5, 77);
  (void)Incident(refusals, 4);
  const Status begun = refusals.BeginStep(Step(5));
  EXPECT_EQ(begun.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(begun.message(), HasSubstr("no more may be"));
}

TEST_F(RefusalsOfAnAgent, DoubtAStepThatIsGoodTheSecondTime) {
  shared.self.options.max_respawns = 3;
  Refusals& refusals = With("");
  RefuseOnce(refusals, 5, 77);
  (void)Incident(refusals, 4);
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  refusals.NoteComputed("grad", 78);
  const Status doubted = refusals.PassGate(Step(5));
  EXPECT_EQ(doubted.code(), StatusCode::kInternal);
  EXPECT_THAT(doubted.message(), HasSubstr("whose machine it was is found out"));
}

TEST_F(RefusalsOfAnAgent, GoOnWhereNoOtherProcessMayTakeThePlace) {
  shared.self.options.max_respawns = 0;
  Refusals& refusals = With("");
  RefuseOnce(refusals, 5, 77);
  (void)Incident(refusals, 4);
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  refusals.NoteComputed("grad", 78);
  EXPECT_TRUE(refusals.PassGate(Step(5)).ok());
}

TEST_F(RefusalsOfAnAgent, DoNotDoubtTheSameNumbers) {
  shared.self.options.max_respawns = 3;
  Refusals& refusals = With("");
  RefuseOnce(refusals, 5, 77);
  (void)Incident(refusals, 4);
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  refusals.NoteComputed("grad", 77);
  EXPECT_TRUE(refusals.PassGate(Step(5)).ok());
}

// ---- rules -----------------------------------------------------------------------------------------------------------

TEST_F(RefusalsOfAnAgent, ComeFromARuleWithoutAWordOfTheTrainers) {
  Refusals& refusals = With("nan,norm:10");
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  refusals.NoteLoss(std::numeric_limits<double>::quiet_NaN(), {});
  EXPECT_FALSE(refusals.AsksNorm(Step(5))) << "it is bad already";
  const Status refused = refusals.PassGate(Step(5));
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_THAT(refused.message(), HasSubstr("step 5 is refused"));
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  refusals.NoteLoss(0.5, {});
  EXPECT_TRUE(refusals.AsksNorm(Step(5)));
  refusals.NoteNorm(11);
  EXPECT_EQ(refusals.PassGate(Step(5)).code(), StatusCode::kInternal);
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  refusals.NoteLoss(0.5, {});
  refusals.NoteNorm(9);
  EXPECT_TRUE(refusals.PassGate(Step(5)).ok());
}

TEST_F(RefusalsOfAnAgent, TakeLossesAlongAsAnObjectOfTheState) {
  Refusals& refusals = With("spike:3");
  const auto& objects = shared.registered.registry().objects();
  const auto losses = objects.find("veto.losses");
  ASSERT_NE(losses, objects.end());
  EXPECT_EQ(losses->second.take_over, TakeOver::kRankZero);
  ASSERT_TRUE(refusals.BeginStep(Step(5)).ok());
  refusals.NoteLoss(0.5, {});
  ASSERT_TRUE(refusals.PassGate(Step(5)).ok());
  std::vector<uint8_t> bytes;
  losses->second.capture(losses->second.context, &bytes);
  EXPECT_EQ(bytes.size(), sizeof(double)) << "of each good step";
  EXPECT_TRUE(losses->second.restore(losses->second.context, bytes.data(), bytes.size()).ok());
  EXPECT_EQ(losses->second.restore(losses->second.context, bytes.data(), 7).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kintsugi
