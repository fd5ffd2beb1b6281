#include "runtime/process/report_ring.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/process/shared_page.h"

namespace kintsugi {
namespace {

// Report `step` of a fixed sequence: everything in it follows from the step, so that a torn record shows.
std::vector<uint64_t> SamplesOf(uint64_t step) {
  std::vector<uint64_t> samples(step * 7 % 97);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = step * 1000003 + i;
  return samples;
}
double LossOf(uint64_t step) { return 1.0 / static_cast<double>(step + 1); }

bool IsWhole(const StepReport& report) {
  const std::vector<uint64_t> samples = SamplesOf(report.step);
  return report.loss == LossOf(report.step) && std::equal(samples.begin(), samples.end(), report.samples.begin(),
                                                           report.samples.end());
}

bool PublishStep(ReportWriter& writer, uint64_t step) { return writer.Publish(step, LossOf(step), SamplesOf(step)); }

TEST(ReportRing, BringsReportsInOrder) {
  const auto ring = std::make_unique<ReportRing>();
  ReportWriter writer(*ring);
  ReportReader reader(*ring);
  uint64_t next = 0;
  for (uint64_t round = 0; round < 300; ++round) {  // several times around the ring
    for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(PublishStep(writer, round * 20 + i));
    reader.Read([&next](const StepReport& report) {
      ASSERT_EQ(report.step, next++);
      ASSERT_TRUE(IsWhole(report));
    });
  }
  EXPECT_EQ(next, 6000u);
  EXPECT_EQ(reader.lost(), 0u);
  EXPECT_EQ(reader.damaged(), 0u);
}

TEST(ReportRing, CountsExactlyWhatWasOverwritten) {
  const auto ring = std::make_unique<ReportRing>();
  ReportWriter writer(*ring);
  ReportReader reader(*ring);
  constexpr uint64_t kReports = 10000;
  for (uint64_t step = 0; step < kReports; ++step) ASSERT_TRUE(PublishStep(writer, step));
  uint64_t read = 0;
  uint64_t last = 0;
  read = reader.Read([&last](const StepReport& report) {
    ASSERT_TRUE(IsWhole(report));
    last = report.step;
  });
  EXPECT_EQ(last, kReports - 1) << "the newest are kept";
  EXPECT_GT(read, 300u);
  EXPECT_EQ(read + reader.lost(), kReports);
  EXPECT_EQ(reader.damaged(), 0u);
}

TEST(ReportRing, TakesTheLargestReportAndRefusesALargerOne) {
  const auto ring = std::make_unique<ReportRing>();
  ReportWriter writer(*ring);
  ReportReader reader(*ring);
  std::vector<uint64_t> samples(ReportRing::kMaxSamples, 5);
  EXPECT_TRUE(writer.Publish(1, std::nan(""), samples));
  samples.push_back(5);
  EXPECT_FALSE(writer.Publish(2, 0, samples));
  EXPECT_EQ(reader.Read([](const StepReport& report) {
    EXPECT_EQ(report.samples.size(), ReportRing::kMaxSamples);
    EXPECT_TRUE(std::isnan(report.loss));
  }), 1u);
}

TEST(ReportRing, ANewWriterGoesOnWhereTheLastStopped) {
  const auto ring = std::make_unique<ReportRing>();
  ReportReader reader(*ring);
  for (uint64_t life = 0; life < 50; ++life) {
    ReportWriter writer(*ring);
    for (uint64_t i = 0; i < 37; ++i) ASSERT_TRUE(PublishStep(writer, life * 37 + i));
  }
  uint64_t last = 0;
  const uint64_t read = reader.Read([&last](const StepReport& report) { last = report.step; });
  EXPECT_EQ(last, 50u * 37 - 1);
  EXPECT_EQ(read + reader.lost(), 50u * 37);
}

TEST(ReportRing, AReaderNeverSeesATornReportOfARunningWriter) {
  const auto ring = std::make_unique<ReportRing>();
  constexpr uint64_t kReports = 100000;
  std::thread producer([&ring] {
    ReportWriter writer(*ring);
    for (uint64_t step = 0; step < kReports; ++step) PublishStep(writer, step);
  });
  ReportReader reader(*ring);
  uint64_t read = 0;
  uint64_t next = 0;
  bool ordered = true;
  bool whole = true;
  const auto check = [&](const StepReport& report) {
    ordered = ordered && report.step >= next;
    whole = whole && IsWhole(report);
    next = report.step + 1;
  };
  while (next < kReports) read += reader.Read(check);
  producer.join();
  EXPECT_TRUE(ordered);
  EXPECT_TRUE(whole);
  EXPECT_EQ(read + reader.lost(), kReports);
  EXPECT_EQ(reader.damaged(), 0u);
}

// Large reports: the reader copies for so long that the writer, which never waits, comes round in the middle of it.
// Four of them fill the ring exactly, so that what the reader finds always begins like a report.
TEST(ReportRing, AReaderGivesUpAReportThatIsOverwrittenWhileItReads) {
  const auto ring = std::make_unique<ReportRing>();
  std::atomic<bool> stop{false};
  uint64_t published = 0;
  std::thread producer([&] {
    ReportWriter writer(*ring);
    std::vector<uint64_t> samples(ReportRing::kMaxSamples);
    for (; !stop.load(); ++published) {
      samples.assign(samples.size(), published);
      writer.Publish(published, 0, samples);
    }
  });
  ReportReader reader(*ring);
  uint64_t read = 0;
  uint64_t torn = 0;
  const auto check = [&torn](const StepReport& report) {
    for (const uint64_t sample : report.samples) torn += sample != report.step ? 1 : 0;
  };
  const auto safety = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (reader.overtaken() < 20 && torn == 0 && std::chrono::steady_clock::now() < safety) read += reader.Read(check);
  stop.store(true);
  producer.join();
  read += reader.Read(check);
  EXPECT_GE(reader.overtaken(), 20u) << "the case never arose: the test proves nothing";
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(read + reader.lost(), published);
  EXPECT_EQ(reader.damaged(), 0u);
}

TEST(ReportRing, AKilledWriterLeavesWholeReportsOnly) {
  Random random(3);
  for (int round = 0; round < 30; ++round) {
    Result<SharedPage> page = SharedPage::Create();
    ASSERT_TRUE(page.ok());
    const pid_t child = ::fork();
    if (child == 0) {
      ReportWriter writer(page->words().reports);
      for (uint64_t step = 0;; ++step) PublishStep(writer, step);
    }
    ASSERT_GT(child, 0);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random.Below(5000)));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ReportReader reader(page->words().reports);
    uint64_t next = 0;
    const uint64_t read = reader.Read([&next](const StepReport& report) {
      ASSERT_TRUE(next == 0 || report.step == next);
      ASSERT_TRUE(IsWhole(report));
      next = report.step + 1;
    });
    EXPECT_EQ(read + reader.lost(), next);
    EXPECT_EQ(reader.damaged(), 0u);
    // And the rank's next life can use the page.
    ReportWriter writer(page->words().reports);
    ASSERT_TRUE(PublishStep(writer, next));
    EXPECT_EQ(reader.Read([&next](const StepReport& report) { EXPECT_EQ(report.step, next); }), 1u);
  }
}

// A trainer that writes anywhere: the reader must come back, within bounds, whatever it finds.
TEST(ReportRing, SurvivesGarbage) {
  const auto ring = std::make_unique<ReportRing>();
  Random random(11);
  for (int round = 0; round < 3000; ++round) {
    ReportReader reader(*ring);
    ReportWriter writer(*ring);
    for (uint64_t i = random.Below(20); i > 0; --i) PublishStep(writer, i);
    for (uint64_t i = random.Below(8); i > 0; --i) {
      const uint64_t value = random.Chance(0.5) ? random.Next() : random.Below(2 * ReportRing::kWords);
      switch (random.Below(4)) {
        case 0: ring->head.store(value); break;
        case 1: ring->oldest.store(value); break;
        case 2: ring->words[random.Below(ReportRing::kWords)].store(value); break;
        default:  // a plausible header with a foreign length
          ring->words[ring->oldest.load() % ReportRing::kWords].store(uint64_t{ReportRing::kRecordMagic} << 32 |
                                                                       random.Below(ReportRing::kMaxSamples * 2));
          break;
      }
    }
    for (int i = 0; i < 3; ++i) {
      reader.Read([](const StepReport& report) { ASSERT_LE(report.samples.size(), ReportRing::kMaxSamples); });
    }
    ASSERT_TRUE(PublishStep(writer, 1)) << "the writer survives its own host's stray writes too";
  }
}

TEST(ReportRing, WordsOfAJumpingHeadAreReportedAsDamage) {
  const auto ring = std::make_unique<ReportRing>();
  ReportReader reader(*ring);
  ring->head.store(uint64_t{1} << 62);
  EXPECT_EQ(reader.Read([](const StepReport&) { FAIL(); }), 0u);
  EXPECT_EQ(reader.damaged(), 1u);
  ring->head.store(5);
  EXPECT_EQ(reader.Read([](const StepReport&) { FAIL(); }), 0u);
  EXPECT_EQ(reader.damaged(), 2u);
}

}  // namespace
}  // namespace kintsugi
