// A recorded run is reproduced to the last action; anything else is found where it first differs.
#include <gtest/gtest.h>

#include "tests/unit/journal/recorded.h"
#include "tools/replay/story.h"

namespace kintsugi::journal {
namespace {

Result<Replayed> ReplayFile(const std::string& path, const std::string& policy = "",
                            const OnInput& on_input = nullptr) {
  auto reader = JournalReader::Open(path);
  if (!reader.ok()) return reader.status();
  return Replay(**reader, ReadPolicy(policy, (*reader)->preamble().policy).value(), on_input);
}

TEST(Replay, ReproducesRunsWithFaults) {
  const TemporaryFolder folder;
  uint64_t actions = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const sim::Plan plan = SomePlan(seed);
    const std::vector<Input> inputs = InputsOf(plan);
    Record({folder / "journal"}, plan.policy, inputs).reset();
    const Result<Replayed> replayed = ReplayFile(folder / "journal");
    ASSERT_TRUE(replayed.ok()) << replayed.status().ToString();
    ASSERT_FALSE(replayed->difference) << "seed " << seed << ": " << replayed->difference->text;
    EXPECT_EQ(replayed->inputs, inputs.size());
    actions += replayed->actions;
  }
  EXPECT_GT(actions, 10'000u);
}

TEST(Replay, FindsADecisionThatDiffers) {
  const TemporaryFolder folder;
  sim::Plan plan = SomePlan(3);
  plan.policy.can_spawn = plan.watched = true;
  plan.policy.max_respawns = 10;
  plan.faults = {{.type = sim::FaultType::kKill, .rank = 1, .in_trainer = sim::TrainerAt::kForward, .step = 2}};
  Record({folder / "journal"}, plan.policy, InputsOf(plan)).reset();
  ASSERT_FALSE(ReplayFile(folder / "journal").value().difference);
  const Result<Replayed> other = ReplayFile(folder / "journal", "max_respawns=0");
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(other->difference);
  EXPECT_GT(other->difference->record, 1u);
  EXPECT_GT(other->difference->at.count(), 0);
  EXPECT_NE(other->difference->event.find("process_exited rank=1"), std::string::npos) << other->difference->event;
}

TEST(Replay, ADigestThatDiffersIsADifferenceToo) {
  const TemporaryFolder folder;
  const sim::Plan plan = SomePlan(4);
  std::vector<Input> inputs = InputsOf(plan);
  for (size_t changed = 0; changed < 8; ++changed) {
    // As a core that decided otherwise would have recorded it: as many actions, one field another.
    auto recorder = Recorder::Open({folder / "journal"}, plan.policy, {1, 1}, NullLogSink()).value();
    core::ControllerCore core(plan.policy, {1, 1});
    size_t sends = 0;
    for (const Input& input : inputs) {
      auto actions = Apply(core, input);
      for (auto& action : actions)
        if (auto* send = std::get_if<core::Send>(&action))
          if (sends++ == changed) send->header.generation = send->header.generation.Next();
      if (std::holds_alternative<Start>(input.what))
        recorder->Started(input.now, actions);
      else
        recorder->Stepped(std::get<core::ControllerEvent>(input.what), input.now, actions);
    }
    recorder.reset();
    const Result<Replayed> replayed = ReplayFile(folder / "journal");
    ASSERT_TRUE(replayed.ok() && replayed->difference) << changed;
    EXPECT_NE(replayed->difference->text.find("others"), std::string::npos) << replayed->difference->text;
  }
}

TEST(Replay, AnInputThatIsLeftOutIsFound) {
  const TemporaryFolder folder;
  const sim::Plan plan = SomePlan(5);
  const std::vector<Input> inputs = InputsOf(plan);
  size_t found = 0, tried = 0;
  for (size_t left_out = 1; left_out < inputs.size(); left_out += 2) {
    auto recorder = Recorder::Open({folder / "journal"}, plan.policy, {1, 1}, NullLogSink()).value();
    core::ControllerCore core(plan.policy, {1, 1});
    size_t acted = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto actions = Apply(core, inputs[i]);
      if (i == left_out) acted = actions.size();
      if (i == left_out) continue;
      if (i == 0)
        recorder->Started(inputs[i].now, actions);
      else
        recorder->Stepped(std::get<core::ControllerEvent>(inputs[i].what), inputs[i].now, actions);
    }
    recorder.reset();
    if (acted == 0) continue;
    ++tried;
    found += ReplayFile(folder / "journal").value().difference.has_value();
  }
  EXPECT_GT(tried, 5u);
  // A message that was dropped, an order that is repeated anyway: some leave no trace but themselves.
  EXPECT_GT(3 * found, 2 * tried) << tried;
}

TEST(Replay, TellsEveryIncident) {
  const TemporaryFolder folder;
  for (uint64_t seed = 200; seed < 220; ++seed) {
    const sim::Plan plan = SomePlan(seed);
    const std::vector<Input> inputs = InputsOf(plan);
    core::ControllerCore core(plan.policy, {1, 1});
    std::vector<core::IncidentRecord> records;
    for (const Input& input : inputs)
      for (const auto& action : Apply(core, input))
        if (const auto* closed = std::get_if<core::IncidentClosed>(&action)) records.push_back(closed->record);
    Record({folder / "journal"}, plan.policy, inputs).reset();
    Story story;
    const OnInput tell = [&](const Input& input, const auto& actions) { story.Take(input, actions); };
    ASSERT_TRUE(ReplayFile(folder / "journal", "", tell).ok());
    const std::string words = story.Words(0);
    for (const core::IncidentRecord& record : records) {
      const std::string title =
          "incident " + std::to_string(record.id) + ": " + std::string(FaultKindName(record.signal));
      EXPECT_NE(words.find(title), std::string::npos) << title << " in\n" << words;
      for (const core::RungReason& reason : record.reasons)
        EXPECT_NE(words.find(reason.text), std::string::npos) << reason.text << " in\n" << words;
    }
    EXPECT_NE(words.find("the run ends with code"), std::string::npos);
  }
}

}  // namespace
}  // namespace kintsugi::journal
