#include "tools/report/text.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tools/report/ticks.h"
#include "tools/report/words.h"

namespace kintsugi {
namespace {

const std::string kMark = "\xEF\xBF\xBD";

TEST(ToUtf8, KeepsWhatIsValidAndMarksWhatIsNot) {
  EXPECT_EQ(ToUtf8("gold \xE9\x87\x91 \xF0\x9F\x8F\xBA"), "gold \xE9\x87\x91 \xF0\x9F\x8F\xBA");
  EXPECT_EQ(ToUtf8("\xff"), kMark);
  EXPECT_EQ(ToUtf8("\xC0\x80"), kMark + kMark);              // overlong
  EXPECT_EQ(ToUtf8("\xED\xA0\x80"), kMark + kMark + kMark);  // surrogate
  EXPECT_EQ(ToUtf8("\xF4\x90\x80\x80"), kMark + kMark + kMark + kMark);
  EXPECT_EQ(ToUtf8("a\xE9\x87"), "a" + kMark + kMark);  // cut short
}

TEST(EscapeHtml, NeutralisesMarkupControlsAndDirectionTricks) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\" b='y'>&"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
  EXPECT_EQ(EscapeHtml("a\nb\tc"), "a\nb\tc");
  EXPECT_EQ(EscapeHtml(std::string("\0\x1b\x7f", 3)), kMark + kMark + kMark);
  EXPECT_EQ(EscapeHtml("\xE2\x80\xAE\xE2\x81\xA6"), kMark + kMark);
}

TEST(Elide, CutsBetweenCharacters) {
  EXPECT_EQ(Elide("short", 5), "short");
  EXPECT_EQ(Elide("longer", 4), "long\xE2\x80\xA6");
  EXPECT_EQ(Elide("ab\xE9\x87\x91", 3), "ab\xE2\x80\xA6");
}

TEST(Format, PutsNumbersInPlainWords) {
  EXPECT_EQ(FormatMs(4.23), "4.2\xC2\xA0ms");
  EXPECT_EQ(FormatMs(301.4), "301\xC2\xA0ms");
  EXPECT_EQ(FormatMs(12345), "12.3\xC2\xA0s");
  EXPECT_EQ(FormatMs(std::nullopt), "not reached");
  EXPECT_EQ(FormatMs(std::numeric_limits<double>::infinity()), "n/a");
  EXPECT_EQ(FormatBytes(768),
            "768\xC2\xA0"
            "B");
  EXPECT_EQ(FormatBytes(43'515'904), "41.5\xC2\xA0MiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX),
            "16.0\xC2\xA0"
            "EiB");
  EXPECT_EQ(FormatCount(1234567),
            "1\xE2\x80\xAF"
            "234\xE2\x80\xAF"
            "567");
  EXPECT_EQ(Fixed(1e308, 2).size(), 312u);
  EXPECT_EQ(FormatLoss(0.00012345), "0.00012345");
  EXPECT_EQ(Counted(1, "rank", "ranks"), "1 rank");
}

TEST(RoundTicks, AreRoundOrderedAndInside) {
  for (const auto& [low, high] :
       {std::pair{0.0, 1.0}, {2.2, 5.5}, {-3.0, 1e9}, {1.0, 80.0}, {1e-9, 2e-9}, {1e17, 1e17 + 64}}) {
    const Axis axis = RoundTicks(low, high, 6);
    EXPECT_GE(axis.ticks.size(), 2u) << low << " " << high;
    EXPECT_LE(axis.ticks.size(), 14u);
    for (size_t i = 0; i < axis.ticks.size(); ++i) {
      EXPECT_TRUE(axis.ticks[i] >= low && axis.ticks[i] <= high);
      EXPECT_TRUE(i == 0 || axis.ticks[i - 1] < axis.ticks[i]);
    }
  }
  EXPECT_EQ(RoundTicks(0, 10, 5).ticks, (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(RoundTicks(0, 1, 5).decimals, 1);
}

TEST(Words, NameRanksAndFaults) {
  EXPECT_EQ(RankWords({}), "no rank");
  EXPECT_EQ(RankWords({Rank(0), Rank(2), Rank(3)}), "ranks 0, 2 and 3");
  EXPECT_EQ(RankWords(std::vector<Rank>(20, Rank(1))), "ranks 1, 1, 1, 1, 1, 1, 1, 1 and 12 more");
  ReportedIncident incident;
  incident.ranks = {Rank(2)};
  incident.fault = "kill";
  incident.struck_step = Step(40);
  incident.struck_phase = "update";
  EXPECT_EQ(FaultWords(incident) + " " + PlaceWords(incident), "Rank 2 was killed in step 40, during update");
  incident.fault = "meteor";
  EXPECT_EQ(FaultWords(incident), "Rank 2: meteor");
}

}  // namespace
}  // namespace kintsugi
