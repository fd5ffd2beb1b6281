#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tools/certify/certificate.h"
#include "tools/certify/certificate_page.h"
#include "tools/certify/plain_facts.h"

namespace kintsugi {
namespace {

using testing::HasSubstr;
using testing::Not;

RunRecord Undisturbed() {
  RunRecord run;
  run.world_size = 2;
  run.steps = 4;
  run.losses = {4, 3, 2, 1};
  run.final_loss = 1;
  run.final_digest = "0123456789abcdef";
  run.samples_consumed = 8;
  run.samples_digest = "00000000000000aa";
  return run;
}

CertifyCell Single() {
  return {"kill, rank 1",
          TrainPhase::kBackward,
          {{.kind = InjectionKind::kKill, .rank = Rank(1), .step = Step(2), .phase = TrainPhase::kBackward}}};
}

RunRecord Struck(const char* rung) {
  RunRecord run = Undisturbed();
  run.struck = {"kill:1@2:backward"};
  run.incidents.emplace_back();
  run.incidents.back().path = rung;
  return run;
}

TEST(CertifyPlan, TriesEveryFaultOnceAndWhatFindsMostFirst) {
  const std::vector<CertifyCell> plan = MakeCertifyPlan({.world_size = 4, .steps = 10});
  std::set<std::string> names, slugs;
  for (const CertifyCell& cell : plan) {
    names.insert(cell.Name());
    slugs.insert(cell.Slug());
    for (const Injection& fault : cell.faults) {
      EXPECT_GE(fault.step, Step(1));
      EXPECT_LE(fault.step, Step(10));
      EXPECT_TRUE(fault.rank == Rank(0) || fault.rank == Rank(3)) << cell.Name();
      EXPECT_TRUE(ParseInjection(ToString(fault)).ok()) << ToString(fault);
    }
  }
  EXPECT_EQ(names.size(), plan.size());
  EXPECT_EQ(slugs.size(), plan.size());
  EXPECT_EQ(plan.size(), 7u * 7 * 2 + 6 + kCollectivesTried);  // kinds, phases, ranks; doubles; collectives
  EXPECT_EQ(plan[0].Name(), "exception, rank 3, forward");
  EXPECT_EQ(plan[7].Name(), "kill, rank 3, forward");
}

TEST(CertifyPlan, TriesTheCollectivesOfAStepInTurn) {
  int next = 1;
  for (const CertifyCell& cell : MakeCertifyPlan({.world_size = 4, .steps = 10})) {
    if (!cell.IsAtCollective()) continue;
    EXPECT_EQ(cell.faults[0].collective, next);
    EXPECT_EQ(cell.Name(), "exception at collective " + std::to_string(next) + ", rank 3");
    EXPECT_EQ(WithinMarked(cell, {TrainPhase::kForward}), cell);  // no phase of the program's is needed
    EXPECT_THAT(JudgeFinished(cell, Undisturbed(), Undisturbed(), std::nullopt).text, HasSubstr("fewer collectives"));
    ++next;
  }
  EXPECT_EQ(next, kCollectivesTried + 1);
}

TEST(CertifyPlan, IsPossibleForTheSmallestPrograms) {
  for (const CertifyCell& cell : MakeCertifyPlan({.world_size = 1, .steps = 2}))
    for (const Injection& fault : cell.faults) {
      EXPECT_EQ(fault.rank, Rank(0));
      EXPECT_LE(fault.step, Step(2));
    }
  EXPECT_LT(MakeCertifyPlan({.world_size = 4, .steps = 10, .quick = true}).size(), 25u);
}

TEST(CertifyPlan, MovesDoublesIntoPhasesThatTheProgramMarks) {
  CertifyCell twice{"twice", std::nullopt, {{.phase = TrainPhase::kBackward}, {.phase = TrainPhase::kGate}}};
  const CertifyCell moved = WithinMarked(twice, {TrainPhase::kBackward});
  EXPECT_EQ(moved.faults[0].phase, TrainPhase::kForward);
  EXPECT_EQ(moved.faults[1].phase, TrainPhase::kGate);
  EXPECT_EQ(WithinMarked(Single(), {TrainPhase::kBackward}), Single());
}

TEST(CertifyVerdict, IsSameOnlyWhereEveryFaultStruckAndNothingDiffers) {
  EXPECT_EQ(JudgeFinished(Single(), Struck("respawn"), Undisturbed(), std::nullopt).outcome, CertifyOutcome::kSame);
  EXPECT_EQ(JudgeFinished(Single(), Undisturbed(), Undisturbed(), std::nullopt).outcome, CertifyOutcome::kNotReached);
}

TEST(CertifyVerdict, SaysWhatDiffersAndWhereToLook) {
  RunRecord run = Struck("retry");
  run.losses[2] = 2.5;
  CertifyResult result = JudgeFinished(Single(), run, Undisturbed(), std::nullopt);
  EXPECT_EQ(result.outcome, CertifyOutcome::kDifferent);
  EXPECT_THAT(result.text, HasSubstr("losses differ from step 3 on (2.5 instead of 2)"));
  EXPECT_THAT(result.text, HasSubstr("random generator"));

  run = Struck("respawn");
  run.final_digest = "ffffffffffffffff";
  EXPECT_THAT(JudgeFinished(Single(), run, Undisturbed(), std::nullopt).text,
              HasSubstr("A new process has only what is registered"));
  run.inexact = {{Rank(1), "object 'average.buffers' of rank 1, step 3"}};
  EXPECT_THAT(JudgeFinished(Single(), run, Undisturbed(), std::nullopt).text,
              HasSubstr("replaces one. The run itself calls it inexact: object 'average.buffers' of rank 1, step 3."));

  run = Struck("retry");
  run.samples_consumed = 9;
  EXPECT_THAT(JudgeFinished(Single(), run, Undisturbed(), std::nullopt).text,
              HasSubstr("9 samples instead of 8. Samples were taken"));

  run = Struck("retry");
  run.final_digest.clear();
  EXPECT_THAT(JudgeFinished(Single(), run, Undisturbed(), std::nullopt).text, HasSubstr("no digest"));
}

TEST(CertifyVerdict, GoesByWhatPlainTorchLeavesWhereTheEndHasNoDigest) {
  RunRecord reference = Undisturbed(), run = Struck("retry");
  reference.final_digest.clear();
  EXPECT_THAT(JudgeFinished(Single(), run, reference, "").text, HasSubstr("no digest"))
      << "the undisturbed run alone changed its state behind the last step";
  run.final_digest.clear();
  EXPECT_EQ(JudgeFinished(Single(), run, reference, "").outcome, CertifyOutcome::kSame);
  EXPECT_EQ(JudgeFinished(Single(), run, reference, std::nullopt).outcome, CertifyOutcome::kDifferent);
  const CertifyResult other = JudgeFinished(Single(), run, reference, "1 value differs");
  EXPECT_EQ(other.outcome, CertifyOutcome::kDifferent);
  EXPECT_THAT(other.text, HasSubstr("something else than plain torch: 1 value differs"));
  EXPECT_EQ(JudgeFinished(Single(), Struck("retry"), Undisturbed(), "1 value differs").outcome,
            CertifyOutcome::kDifferent);
}

TEST(CertifyVerdict, TellsALastCopyThatASecondFaultTookFromAMistake) {
  CertifyCell twice = Single();
  twice.faults.push_back(twice.faults.front());
  RunRecord run = Struck("retry");
  EXPECT_EQ(JudgeEnded(Single(), run, "words").outcome, CertifyOutcome::kFailed);
  run.incidents.push_back(run.incidents.back());
  run.incidents.back().path = "exit";
  EXPECT_EQ(JudgeEnded(twice, run, "words").outcome, CertifyOutcome::kFailed) << "only one of them struck";
  run.struck.push_back(run.struck.back());
  EXPECT_EQ(JudgeEnded(twice, run, "words").outcome, CertifyOutcome::kFailed) << "given up for another reason";
  run.incidents.back().reasons = {{"dump", "there is no step that every shard still holds"}};
  EXPECT_EQ(JudgeEnded(twice, run, "words").outcome, CertifyOutcome::kNoCopy);
  EXPECT_THAT(JudgeEnded(twice, run, "words").text, HasSubstr("more replicas"));
  run.incidents.back().path = "respawn";
  EXPECT_EQ(JudgeEnded(twice, run, "words").text, "words");
}

TEST(CertifyVerdict, HoldsAResumedRunAgainstTheStepsThatItComputed) {
  RunRecord resumed = Undisturbed();
  resumed.resumed_from = 2;
  resumed.steps = 2;
  resumed.losses = {2, 1};
  EXPECT_EQ(JudgeResumed(Struck("dump"), resumed, Undisturbed(), std::nullopt).outcome, CertifyOutcome::kSaved);
  resumed.losses = {2, 1.5};
  EXPECT_THAT(JudgeResumed(Struck("dump"), resumed, Undisturbed(), std::nullopt).text, HasSubstr("from step 4 on"));
  resumed.losses = {2};
  EXPECT_EQ(JudgeResumed(Struck("dump"), resumed, Undisturbed(), std::nullopt).outcome, CertifyOutcome::kDifferent);
  resumed.losses = {2, 1};
  resumed.final_digest = "1";
  EXPECT_EQ(JudgeResumed(Struck("dump"), resumed, Undisturbed(), std::nullopt).outcome, CertifyOutcome::kDifferent);
}

Certificate Mixed() {
  Certificate certificate;
  certificate.program = {"train", "<script>"};
  certificate.world_size = 2;
  certificate.steps = 4;
  certificate.cells.push_back({Single(), {CertifyOutcome::kSame, "", "respawn", 1}, "kintsugi run", ""});
  CertifyCell other = Single();
  other.phase = TrainPhase::kUpdate;
  certificate.cells.push_back(
      {other, {CertifyOutcome::kDifferent, "losses & <b>", "adopt", 1}, "kintsugi run --inject x", "cells/x"});
  certificate.cells.push_back({{"twice", std::nullopt, {}}, {}, "kintsugi run", ""});
  return certificate;
}

TEST(Certificate, PassesOnlyWhereSomethingWasTriedAndNothingWentWrong) {
  Certificate certificate = Mixed();
  EXPECT_FALSE(certificate.passed());
  EXPECT_THAT(CertificateVerdict(certificate), HasSubstr("1 fault of 2 tried did not end"));
  certificate.cells.erase(certificate.cells.begin() + 1);
  EXPECT_TRUE(certificate.passed());
  EXPECT_THAT(CertificateVerdict(certificate), HasSubstr("1 not done"));
  certificate.nondeterminism = "losses differ";
  EXPECT_FALSE(certificate.passed());
  EXPECT_FALSE(Certificate().passed());
}

TEST(Certificate, ALastCopyThatWasTakenIsToldAndIsNoFailure) {
  Certificate certificate = Mixed();
  certificate.cells[1].result = {CertifyOutcome::kNoCopy, "no copy & more", "exit", 1};
  EXPECT_TRUE(certificate.passed());
  EXPECT_THAT(CertificateVerdict(certificate), HasSubstr("1 fault of 2 tried ended in"));
  EXPECT_THAT(CertificateVerdict(certificate), HasSubstr("1 left no copy"));
  EXPECT_THAT(CertificateText(certificate), HasSubstr("no copy & more\n  kintsugi run --inject x"));
  EXPECT_THAT(CertificateHtml(certificate), HasSubstr("no copy &amp; more"));
}

TEST(Certificate, TellsWhatFailedWithItsCommand) {
  const std::string text = CertificateText(Mixed());
  EXPECT_THAT(
      text,
      HasSubstr("DIFFERENT: kill, rank 1, update (repaired by adopt)\n  losses & <b>\n  kintsugi run --inject x"));
  const nlohmann::ordered_json json = CertificateJson(Mixed());
  EXPECT_EQ(json["cells"].size(), 3u);
  EXPECT_EQ(json["cells"][1]["outcome"], "DIFFERENT");
  EXPECT_EQ(json["cells"][2]["phase"], nullptr);
}

TEST(CertificatePage, EscapesWhatComesFromOutside) {
  const std::string page = CertificateHtml(Mixed());
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("losses &amp; &lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr("kintsugi run --inject x"));
}

TEST(PlainTorch, TellTheFirstLossThatDiffersAndElseTheFirstValue) {
  const std::vector<PlainFacts> plain = {
      {{{"model/w", "float32 [2] aa"}, {"rate/last_epoch", "3"}}, {{1, "0.5"}, {2, "0.25"}}},
      {{{"model/w", "float32 [2] aa"}}, {}}};
  std::vector<PlainFacts> found = plain;
  found[1].values["model/more"] = "what plain torch does not have is no difference";
  EXPECT_EQ(DifferenceOfFacts(found, plain, kUnderPlainTorch), "");
  found[0].values["rate/last_epoch"] = "2";
  found[1].values.erase("model/w");
  EXPECT_EQ(DifferenceOfFacts(found, plain, kUnderPlainTorch),
            "2 values differ: rank 0 has 'rate/last_epoch' as 2, under plain torch it is 3");
  found[0].losses[2] = "0.125";
  EXPECT_EQ(DifferenceOfFacts(found, plain, kUnderPlainTorch),
            "rank 0: the first loss that differs is that of step 2: 0.125, under plain torch 0.25");
  EXPECT_EQ(DescribeFacts(plain), "2 values and 2 losses of each rank");
}

TEST(PlainTorch, ReadsWhatRanksWriteAndNothingElse) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "facts";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "rank-0.json");
  EXPECT_EQ(ReadFacts(folder, 1).status().code(), StatusCode::kNotFound);
  for (const char* text : {"", "[]", "{\"values\": {}}", "{\"values\": {\"a\": 1}, \"losses\": {}}",
                           "{\"values\": {}, \"losses\": {\"first\": \"1\"}}"}) {
    std::ofstream(folder / "rank-0.json") << text;
    EXPECT_EQ(ReadFacts(folder, 1).status().code(), StatusCode::kDataLoss) << text;
  }
  std::ofstream(folder / "rank-0.json") << "{\"values\": {\"a\": \"1\"}, \"losses\": {\"7\": \"0.5\"}}";
  const auto facts = ReadFacts(folder, 1);
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ((*facts)[0].values.at("a"), "1");
  EXPECT_EQ((*facts)[0].losses.at(7), "0.5");
}

TEST(Certificate, FailsWhereTheUndisturbedRunIsNotWhatPlainTorchIs) {
  Certificate certificate;
  certificate.plain_difference = "1 value differs: rank 0 has 'model/w' as <b>";
  EXPECT_FALSE(certificate.passed());
  EXPECT_THAT(CertificateText(certificate),
              HasSubstr("other numbers than the same script under plain torch.\n  1 value"));
  EXPECT_THAT(CertificateHtml(certificate), HasSubstr("as &lt;b&gt;"));
}

}  // namespace
}  // namespace kintsugi
