// Faults that are ordered: where they strike, what is damaged, and that the page says so before anything else happens.
#include "runtime/agent/injections.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>

#include "runtime/base/unique_fd.h"
#include "tests/unit/agent/whole_agent.h"

namespace kintsugi {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class InjectionsOfAnAgent : public WholeAgent {
 protected:
  // A second tensor, of another layout.
  void AddMoments() {
    ShardedTensor moments;
    moments.key = "moments";
    moments.dtype = DType::kFloat32;
    moments.global_shape = moments.local_shape = {4};
    moments.global_offset = {0};
    moments.layout = 1;
    moments.memory.data = second;
    moments.memory.size_bytes = sizeof(second);
    ASSERT_TRUE(shared.registered.AddTensor(moments).ok());
  }
  static Injection Fault(const std::string& spec) {
    const Result<Injection> fault = ParseInjection(spec);
    EXPECT_TRUE(fault.ok()) << fault.status().ToString();
    return fault.ok() ? *fault : Injection{};
  }
  // Ordered as the launcher's number 3, and due at once.
  Status Strike(const std::string& spec, uint64_t step = 5) {
    shared.armed.Arm("3 " + spec, Rank(0));
    EXPECT_TRUE(shared.armed.any()) << spec;
    return trainer.injections.StrikeIfDue(Step(step), [](const Injection&) { return true; });
  }
  bool told_in_page() {
    return shared.page.words().fired_injections.load() == 1u << 3 && shared.page.words().fault_ns.load() > 0;
  }

  float second[4] = {1, 1, 1, 1};
  StateDamage damage{shared.registered};
};

TEST_F(InjectionsOfAnAgent, StrikeAtTheirStepAlone) {
  GoOn(4);
  EXPECT_TRUE(Strike("throw:0@6").ok());
  EXPECT_FALSE(told_in_page());
  const Status thrown = trainer.injections.StrikeIfDue(Step(6), [](const Injection&) { return true; });
  EXPECT_EQ(thrown.code(), StatusCode::kInternal);
  EXPECT_THAT(thrown.message(), HasSubstr("injected exception: throw:0@6"));
  EXPECT_TRUE(told_in_page());
  EXPECT_TRUE(trainer.injections.TakeThrow());
  EXPECT_FALSE(trainer.injections.TakeThrow()) << "thrown once";
  EXPECT_TRUE(trainer.injections.StrikeIfDue(Step(6), [](const Injection&) { return true; }).ok()) << "struck once";
}

TEST_F(InjectionsOfAnAgent, StrikeWhereTheMarkersSayThatTheRankIs) {
  GoOn(4);
  shared.armed.Arm("3 throw:0@5:backward", Rank(0));
  ASSERT_TRUE(trainer.steps.Begin(Step(5)).ok());
  EXPECT_TRUE(trainer.steps.EnterPhase(Step(5), TrainPhase::kForward).ok());
  EXPECT_TRUE(trainer.steps.BeginCollective().ok());
  EXPECT_EQ(trainer.steps.EnterPhase(Step(5), TrainPhase::kBackward).code(), StatusCode::kInternal);
  shared.armed.Arm("4 throw:0@5,collective=3", Rank(0));
  EXPECT_TRUE(trainer.steps.EnterPhase(Step(5), TrainPhase::kForward).ok()) << "not at a mark";
  EXPECT_TRUE(trainer.steps.BeginCollective().ok());
  EXPECT_EQ(trainer.steps.BeginCollective().code(), StatusCode::kInternal);
}

TEST_F(InjectionsOfAnAgent, OfAHangAreEndedByTheNextIncident) {
  GoOn(4);
  (void)shared.gate.Lock();
  EXPECT_EQ(Strike("hang:0@5,until=stop").code(), StatusCode::kInterrupted);
  EXPECT_TRUE(told_in_page());
}

TEST_F(InjectionsOfAnAgent, FlipABitInWhatIsGivenToACollective) {
  GoOn(4);
  ASSERT_TRUE(trainer.steps.Begin(Step(5)).ok());
  shared.armed.Arm("3 flip-grad:0@5,collective=1", Rank(0));
  std::vector<float> gradients(16, 1.0f);
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(gradients.data()), gradients.size() * sizeof(float));
  ASSERT_TRUE(trainer.steps.BeginCollective(bytes).ok()) << "nobody is told";
  EXPECT_EQ(std::count(gradients.begin(), gradients.end(), 1.0f), 15);
  EXPECT_TRUE(told_in_page());
  ASSERT_TRUE(trainer.steps.BeginCollective(bytes).ok());
  EXPECT_EQ(std::count(gradients.begin(), gradients.end(), 1.0f), 15) << "once";
}

TEST_F(InjectionsOfAnAgent, OfMemoryPoisonItAndTellWhatIsDamaged) {
  AddMoments();
  GoOn(4);
  EXPECT_EQ(Strike("uce:0@5,tensors=mom*").code(), StatusCode::kInterrupted);
  for (const float number : second) EXPECT_TRUE(std::isnan(number));
  EXPECT_THAT(numbers, Each(0.0f)) << "another tensor";
  const auto faults = All<core::FaultReport>();
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults[0].kind, FaultKind::kMemoryLow);
  EXPECT_THAT(faults[0].damaged_keys, ElementsAre("moments"));
  EXPECT_EQ(mark(), StateMark::kWriting);
}

TEST_F(InjectionsOfAnAgent, OfAllMemoryNameNoTensor) {
  AddMoments();
  GoOn(4);
  EXPECT_EQ(Strike("uce:0@5,level=high").code(), StatusCode::kInterrupted);
  EXPECT_TRUE(std::isnan(numbers[0]) && std::isnan(second[3]));
  const auto faults = All<core::FaultReport>();
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults[0].kind, FaultKind::kMemoryHigh);
  EXPECT_THAT(faults[0].damaged_keys, IsEmpty());
}

TEST_F(InjectionsOfAnAgent, OfADeviceAreToldToTheLauncherThatWatchesIt) {
  GoOn(4);
  const Status nobody = Strike("device:0@5,xid=13");
  EXPECT_EQ(nobody.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(nobody.message(), HasSubstr("kintsugi run"));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  shared.self.options.device = 2;
  shared.self.options.device_fd = write_end.get();
  EXPECT_TRUE(Strike("device:0@5,xid=92").ok()) << "one that a process outlives";
  char text[256] = {};
  ASSERT_GT(read(read_end.get(), text, sizeof text - 1), 0);
  EXPECT_THAT(std::string(text), ::testing::AllOf(HasSubstr("92"), ::testing::EndsWith("\n")));
}

TEST_F(InjectionsOfAnAgent, OfADeviceAreOneMessageThatItCannotWrite) {
  GoOn(4);
  const UniqueFd closed(open("/dev/null", O_RDONLY | O_CLOEXEC));
  shared.self.options.device_fd = closed.get();
  EXPECT_THAT(Strike("device:0@5,xid=13").message(), HasSubstr("could not be told"));
}

// ---- what is damaged ---------------------------------------------------------------------------------------------------

TEST_F(InjectionsOfAnAgent, MeanTheFirstLayoutWhereTheyNameNothing) {
  AddMoments();
  EXPECT_THAT(damage.KeysOf(Fault("uce:0@5")), ElementsAre("w"));
  EXPECT_THAT(damage.KeysOf(Fault("uce:0@5,tensors=*")), ElementsAre("moments", "w"));
  EXPECT_THAT(damage.KeysOf(Fault("uce:0@5,tensors=nothing*")), IsEmpty());
  EXPECT_THAT(damage.KeysOf(Fault("uce:0@5,level=high")), ElementsAre("moments", "w"));
}

TEST_F(InjectionsOfAnAgent, DamageWholePagesThatLieWithinATensor) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<uint8_t> memory(4 * page);
  ShardedTensor large;
  large.key = "large";
  large.dtype = DType::kUInt8;
  large.global_shape = large.local_shape = {static_cast<int64_t>(memory.size())};
  large.global_offset = {0};
  large.memory.data = memory.data();
  large.memory.size_bytes = memory.size();
  ASSERT_TRUE(shared.registered.AddTensor(large).ok());
  const auto start = reinterpret_cast<uint64_t>(memory.data());
  const auto pages = damage.PagesOf(Fault("device:0@5,tensors=large"));
  ASSERT_THAT(pages, SizeIs(1));
  EXPECT_EQ(pages[0].start % page, 0u);
  EXPECT_EQ(pages[0].size_bytes % page, 0u);
  EXPECT_GE(pages[0].start, start);
  EXPECT_LE(pages[0].start + pages[0].size_bytes, start + memory.size());
  EXPECT_GE(pages[0].size_bytes, 3 * page);
  EXPECT_EQ(damage.PagesOf(Fault("device:0@5,tensors=w"))[0].size_bytes, 0u) << "no page is its own";
}

TEST_F(InjectionsOfAnAgent, FlipOneBitOfAnElementThatIsNotZero) {
  AddMoments();
  numbers[1] = 2.5f;
  damage.Flip(Fault("flip:0@5"));
  EXPECT_EQ(std::count(std::begin(numbers), std::end(numbers), 0.0f), 3);
  EXPECT_NE(numbers[1], 2.5f);
  EXPECT_THAT(second, Each(1.0f));
  uint32_t before = 0, now = 0;
  const float old = 2.5f;
  std::memcpy(&before, &old, sizeof old);
  std::memcpy(&now, &numbers[1], sizeof now);
  EXPECT_EQ(__builtin_popcount(before ^ now), 1);
}

TEST_F(InjectionsOfAnAgent, FlipTheNextTensorWhereOneIsAllZeros) {
  AddMoments();
  std::fill(std::begin(second), std::end(second), 0.0f);
  numbers[3] = 1;
  damage.Flip(Fault("flip:0@5,tensors=*"));
  EXPECT_THAT(second, Each(0.0f));
  EXPECT_NE(numbers[3], 1.0f);
}

}  // namespace
}  // namespace kintsugi
