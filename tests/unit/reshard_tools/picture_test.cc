// The picture of a plan: what must be in it, and what it is refused for.
#include "tools/reshard/picture.h"

#include "tests/unit/reshard_tools/specs.h"

namespace kintsugi::reshard {
namespace {

using testing::HasSubstr;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Picture, ShowsHoldersAndEveryMove) {
  const std::string drawn = *DrawMoves(MustAnswer(kColumnsToRows), "");
  EXPECT_TRUE(drawn.starts_with("<svg xmlns=")) << drawn.substr(0, 80);
  EXPECT_TRUE(drawn.ends_with("</svg>\n"));
  EXPECT_THAT(drawn, HasSubstr("w [4, 6]: who sends what to whom"));
  EXPECT_THAT(drawn, HasSubstr(">rank 1</text>"));
  EXPECT_THAT(drawn, HasSubstr("Rank 1 gets"));
  EXPECT_EQ(Count(drawn, "class=\"b h"), 2u + 5u);  // pieces and moves
  EXPECT_EQ(Count(drawn, "class=\"own\""), 3u);
  EXPECT_THAT(drawn, HasSubstr("prefers-color-scheme:dark"));
}

TEST(Picture, DrawsARenamedTensor) {
  const std::string drawn = *DrawMoves(MustAnswer(kRenamed, Renamed()), "d");
  EXPECT_THAT(drawn, HasSubstr("Held: s0 [2, 2]"));
  EXPECT_THAT(drawn, HasSubstr("Held: s1 [2, 2]"));
}

TEST(Picture, EscapesNames) {
  std::string spec = kColumnsToRows;
  for (size_t at = 0; (at = spec.find("\"w\"", at)) != std::string::npos;) spec.replace(at, 3, "\"<w>\"");
  EXPECT_EQ(DrawMoves(MustAnswer(spec), "")->find("<w>"), std::string::npos);
}

TEST(Picture, RefusesWhatItCannotDraw) {
  const ReshardAnswer answer = MustAnswer(kRenamed, Renamed());
  EXPECT_EQ(DrawMoves(answer, "x").status().message(), "'x' is not among the target's tensors");
  EXPECT_EQ(DrawMoves(answer, "n").status().message(), "'n' has 1 axes; what can be drawn has two");
}

}  // namespace
}  // namespace kintsugi::reshard
