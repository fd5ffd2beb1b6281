#include "runtime/controller/refusal_log.h"

#include <gtest/gtest.h>

#include "tests/support/memory_log.h"

namespace kintsugi {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) { return TimePoint(Duration(milliseconds(1'000'000 + ms))); }

TEST(RefusalLog, WritesWhoAndWhy) {
  auto sink = std::make_shared<MemoryLogSink>();
  RefusalLog log(sink);
  log.Write("peer_refused", "127.0.0.1:9", "not ours", At(0));
  EXPECT_EQ(sink->lines(), std::vector<std::string>{"event=peer_refused peer=127.0.0.1:9 why=\"not ours\""});
}

TEST(RefusalLog, AFloodWritesSoManyLinesAndHowManyItLeftOut) {
  auto sink = std::make_shared<MemoryLogSink>();
  RefusalLog log(sink);
  for (int i = 0; i < 10'000; ++i) log.Write("peer_refused", "p", "w", At(i / 20));  // half a second
  EXPECT_EQ(sink->lines().size(), RefusalLog::kLinesPerWindow);
  log.Write("peer_refused", "p", "w", At(1001));
  ASSERT_EQ(sink->lines().size(), RefusalLog::kLinesPerWindow + 2);
  EXPECT_EQ(sink->lines()[RefusalLog::kLinesPerWindow],
            "event=refusals_not_shown count=" + std::to_string(10'000 - RefusalLog::kLinesPerWindow));
  log.Write("peer_refused", "p", "w", At(2500));
  EXPECT_EQ(sink->lines().size(), RefusalLog::kLinesPerWindow + 3) << "nothing was left out since";
}

TEST(RefusalLog, QuotesOnlySoMuchOfWhatAPeerSaid) {
  auto sink = std::make_shared<MemoryLogSink>();
  RefusalLog(sink).Write("frame_refused", "p", std::string(1 << 20, 'x'), At(0));
  EXPECT_LT(sink->lines().at(0).size(), RefusalLog::kWhyBytesMax + 100);
}

}  // namespace
}  // namespace kintsugi
