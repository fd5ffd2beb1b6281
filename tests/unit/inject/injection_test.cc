#include "runtime/inject/injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/inject/glob.h"

namespace kintsugi {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ErrorOf(std::string_view spec) {
  const Result<Injection> result = ParseInjection(spec);
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  return result.status().message();
}

TEST(Injection, ReadsEveryPart) {
  const Result<Injection> uce = ParseInjection("uce:1@12:backward,level=high,tensors=adam.*");
  ASSERT_TRUE(uce.ok()) << uce.status().ToString();
  EXPECT_EQ(uce->kind, InjectionKind::kUce);
  EXPECT_EQ(uce->rank, Rank(1));
  EXPECT_EQ(uce->step, Step(12));
  EXPECT_EQ(uce->phase, TrainPhase::kBackward);
  EXPECT_EQ(uce->level, UceLevel::kHigh);
  EXPECT_EQ(uce->tensors, "adam.*");
}

TEST(Injection, FillsDefaults) {
  const Result<Injection> exit = ParseInjection("exit:0@1");
  ASSERT_TRUE(exit.ok());
  EXPECT_EQ(exit->phase, TrainPhase::kForward);
  EXPECT_EQ(exit->exit_code, 1);
  EXPECT_EQ(ToString(*exit), "exit:0@1:forward");
}

TEST(Injection, RoundTripsEveryKindAndPhase) {
  for (const char* kind : {"kill", "exit", "throw", "freeze", "slow", "uce", "flip", "device"}) {
    for (const TrainPhaseNameEntry& phase : kTrainPhases) {
      const std::string spec = std::string(kind) + ":3@9:" + std::string(phase.name);
      const Result<Injection> parsed = ParseInjection(spec);
      ASSERT_TRUE(parsed.ok()) << spec << ": " << parsed.status().ToString();
      EXPECT_EQ(parsed->phase, phase.phase);
      EXPECT_EQ(ToString(*parsed), spec);
    }
  }
}

TEST(Injection, ADeviceReportsAnXidOrDamagedTensors) {
  const Result<Injection> fallen = ParseInjection("device:1@5:backward,xid=79");
  ASSERT_TRUE(fallen.ok()) << fallen.status().ToString();
  EXPECT_EQ(fallen->xid, 79);
  EXPECT_EQ(ToString(*fallen), "device:1@5:backward,xid=79");
  EXPECT_EQ(ParseInjection("device:1@5")->xid, 94);
  EXPECT_EQ(ToString(*ParseInjection("device:1@5,tensors=adam.*")), "device:1@5:forward,tensors=adam.*");
  EXPECT_THAT(ErrorOf("device:1@5,xid=95,tensors=adam.*"), HasSubstr("one of them"));
  EXPECT_THAT(ErrorOf("device:1@5,xid=0"), HasSubstr("an Xid from 1 to 9999"));
  EXPECT_THAT(ErrorOf("kill:1@5,xid=94"), HasSubstr("the key collective of kill"));
}

TEST(Injection, StrikesAtACollectiveOfTheStepInsteadOfAtAPhase) {
  const Result<Injection> third = ParseInjection("throw:1@5,collective=3");
  ASSERT_TRUE(third.ok()) << third.status().ToString();
  EXPECT_EQ(third->collective, 3);
  EXPECT_EQ(ToString(*third), "throw:1@5:forward,collective=3");
  EXPECT_EQ(ToString(*ParseInjection("exit:1@5,collective=2,code=3")), "exit:1@5:forward,collective=2,code=3");
  EXPECT_EQ(ParseInjection("throw:1@5")->collective, 0);
  EXPECT_THAT(ErrorOf("throw:1@5,collective=0"), HasSubstr("the number of a collective from 1"));
  EXPECT_THAT(ErrorOf("throw:1@5:backward,collective=2"), HasSubstr("no phase beside it"));
  EXPECT_THAT(ErrorOf("slow:1@5,collective=2"), HasSubstr("the key ms of slow"));
}

TEST(Injection, FlipsABitOfWhatACollectiveIsGiven) {
  EXPECT_EQ(ToString(*ParseInjection("flip-grad:1@5")), "flip-grad:1@5:forward,collective=1");
  EXPECT_EQ(*ParseInjection("flip-grad:1@5:forward,collective=1"), *ParseInjection("flip-grad:1@5"));
  EXPECT_EQ(ParseInjection("flip-grad:1@5,collective=3")->collective, 3);
  EXPECT_THAT(ErrorOf("flip-grad:1@5:gate"), HasSubstr("no phase"));
  EXPECT_THAT(ErrorOf("flip-grad:1@5,tensors=*"), HasSubstr("the key collective of flip-grad"));
}

TEST(Injection, NamesColumnFindingGrammarAndExample) {
  const std::string error = ErrorOf("kil:2@7");
  EXPECT_THAT(error, HasSubstr("column 1: found \"kil\""));
  EXPECT_THAT(error, HasSubstr("KIND:RANK@STEP[:PHASE][,key=value]..."));
  EXPECT_THAT(error, HasSubstr("example: kill:2@7:update"));
  EXPECT_THAT(ErrorOf("kill:x@7"), HasSubstr("column 6: found \"x\", expected a rank"));
  EXPECT_THAT(ErrorOf("kill:2"), HasSubstr("column 7: found the end, expected @"));
  EXPECT_THAT(ErrorOf("kill:2@0"), HasSubstr("column 8: found \"0\", expected a step from 1"));
  EXPECT_THAT(ErrorOf("kill:2@7:upd"), HasSubstr("column 10: found \"upd\", expected a phase"));
  EXPECT_THAT(ErrorOf("kill:2@7,code=3"), HasSubstr("expected the key collective of kill"));
  EXPECT_THAT(ErrorOf("exit:2@7,level=low"), HasSubstr("expected the keys code or collective of exit"));
  EXPECT_THAT(ErrorOf("exit:2@7,code=256"), HasSubstr("column 15: found \"256\""));
  EXPECT_THAT(ErrorOf("exit:2@7,code"), HasSubstr("column 14: found the end, expected ="));
  EXPECT_THAT(ErrorOf("uce:2@7,level=mid"), HasSubstr("column 15: found \"mid\", expected low or high"));
  EXPECT_THAT(ErrorOf("uce:2@7,tensors="), HasSubstr("a pattern of tensor names"));
  EXPECT_THAT(ErrorOf("uce:2@7,level=low,level=low"), HasSubstr("column 19: found \"level\", expected each key once"));
}

TEST(Injection, RefusesWhatIsAlmostRight) {
  for (const char* spec : {"", ":", "kill", "kill:", "kill:@", "kill:1@", "kill:-1@2", "kill:+1@2", "kill: 1@2",
                           "kill:1@2 ", "kill:2147483648@1", "kill:1@72057594037927936", "kill:1@99999999999999999999",
                           "kill:1@2:", "kill:1@2:update:gate", "kill:1@2,", "exit:1@2,code=0", "exit:1@2,code=",
                           "exit:1@2,,code=2", "KILL:1@2", "kill:1@2:Update", "kill:1@0x2", "uce:1@2,=low"}) {
    EXPECT_FALSE(ParseInjection(spec).ok()) << spec;
  }
}

TEST(Injection, EscapesUnprintableBytesInItsError) {
  const std::string error = ErrorOf(std::string("ki\x1b[2Jll:1@2\0", 12));
  EXPECT_THAT(error, HasSubstr("\\x1b"));
  EXPECT_THAT(error, Not(HasSubstr("\x1b")));
}

TEST(Injection, RefusesNamesThatAreNoUtf8) {
  EXPECT_THAT(ErrorOf("uce:1@5:forward,tensors=w\xFFx"), HasSubstr("expected UTF-8"));
  EXPECT_TRUE(ParseInjection("uce:1@5:forward,tensors=w\xC3\xA4x").ok());
}

TEST(Injection, RefusesAnOverlongSpecWithABoundedMessage) {
  const std::string error = ErrorOf("uce:1@2,tensors=" + std::string(100000, 'a'));
  EXPECT_THAT(error, HasSubstr("at most 1024"));
  EXPECT_LT(error.size(), 1500u);
}

// Damages a valid SPEC in one to four places: bytes changed, removed, added, doubled, or spliced with another SPEC.
std::string Mutate(std::string spec, const std::vector<std::string>& seeds, Random& random) {
  static constexpr std::string_view kSigns = ":@,=0123456789acdefghiklmnoprstuwyz-*?.";
  const uint64_t edits = 1 + random.Next() % 4;
  for (uint64_t i = 0; i < edits; ++i) {
    const size_t at = spec.empty() ? 0 : random.Next() % spec.size();
    const char sign = random.Next() % 4 != 0 ? kSigns[random.Next() % kSigns.size()] : static_cast<char>(random.Next());
    switch (random.Next() % 5) {
      case 0: if (!spec.empty()) spec[at] = sign; break;
      case 1: if (!spec.empty()) spec.erase(at, 1 + random.Next() % 3); break;
      case 2: spec.insert(at, 1, sign); break;
      case 3: spec += spec.substr(at); break;
      default: spec = spec.substr(0, at) + seeds[random.Next() % seeds.size()].substr(0, random.Next() % 12); break;
    }
  }
  return spec;
}

TEST(Injection, SurvivesMutationsAndRoundTripsWhatItAccepts) {
  const std::vector<std::string> seeds = {"kill:2@7:update", "exit:0@1,code=77", "throw:31@4096:gradient-sync",
                                          "freeze:1@3:between", "uce:1@12:backward,level=high,tensors=adam.*",
                                          "uce:0@5:param-sync,tensors=w?.*,level=low"};
  Random random(20261121);
  int accepted = 0;
  for (int i = 0; i < 100000; ++i) {
    const std::string spec = Mutate(seeds[random.Next() % seeds.size()], seeds, random);
    const Result<Injection> first = ParseInjection(spec);
    if (!first.ok()) {
      ASSERT_EQ(first.status().code(), StatusCode::kInvalidArgument);
      ASSERT_NE(first.status().message().find("example:"), std::string::npos);
      continue;
    }
    ++accepted;
    const Result<Injection> second = ParseInjection(ToString(*first));
    ASSERT_TRUE(second.ok()) << spec << " -> " << ToString(*first);
    ASSERT_EQ(*first, *second) << spec;
  }
  EXPECT_GT(accepted, 1000) << "the mutations reach only the error paths";
}

TEST(TrainPhase, ProgressWordRoundTripsAndTakesAnyWord) {
  for (const TrainPhaseNameEntry& entry : kTrainPhases) {
    const Progress progress = UnpackProgress(PackProgress(kMaxProgressStep, entry.phase));
    EXPECT_EQ(progress.step, kMaxProgressStep);
    EXPECT_EQ(progress.phase, entry.phase);
    EXPECT_EQ(TrainPhaseFromName(entry.name), entry.phase);
  }
  EXPECT_FALSE(UnpackProgress(0).phase.has_value());
  EXPECT_FALSE(UnpackProgress(~uint64_t{0}).phase.has_value());
}

TEST(Glob, MatchesWholeNames) {
  EXPECT_TRUE(GlobMatch("*", ""));
  EXPECT_TRUE(GlobMatch("adam.*", "adam.m.layers[0].w"));
  EXPECT_TRUE(GlobMatch("*.w", "layers[0].w"));
  EXPECT_TRUE(GlobMatch("l?yers*0*w", "layers[0].w"));
  EXPECT_TRUE(GlobMatch("*a*b", "xaxxaxb"));
  EXPECT_FALSE(GlobMatch("adam", "adam.m"));
  EXPECT_FALSE(GlobMatch("?", ""));
  EXPECT_FALSE(GlobMatch("*a*b", "xaxxbx"));
}

}  // namespace
}  // namespace kintsugi
