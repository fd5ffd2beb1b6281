#include "integrations/examples/byte_lm/sampler.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/byte_lm/cluster.h"

namespace kintsugi::byte_lm {
namespace {

const TextData& Text() {
  static const TextData text = TextData::FromBytes([] {
    std::string bytes;
    // A period that does not divide the context, so that places in the window give nothing away.
    for (int i = 0; i < 400; ++i) bytes += "abcdefg";
    return bytes;
  }());
  return text;
}

TEST(Sampler, WritesWhatItHasLearnt) {
  TrainerOptions options = TinyOptions();
  options.train.steps = 150;
  options.train.batch = 8;
  Cluster world(options, Text(), 1, 1, 1);
  ASSERT_TRUE(world.Train(1, 150).ok());
  SampleOptions sample;
  sample.prompt = "abcd";
  sample.length = 40;
  sample.temperature = 0;
  const auto text = world[0].Generate(sample);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "efgabcdefgabcdefgabcdefgabcdefgabcdefgab");
}

TEST(Sampler, TheSeedDecidesTheText) {
  Cluster world(TinyOptions(), Text(), 1, 1, 1);
  SampleOptions sample;
  sample.length = 24;
  const std::string first = world[0].Generate(sample).value();
  EXPECT_EQ(first.size(), 24u);
  EXPECT_EQ(world[0].Generate(sample).value(), first);
  sample.seed = 2;
  EXPECT_NE(world[0].Generate(sample).value(), first);
}

TEST(Sampler, AnEmptyPromptCountsAsANewline) {
  Cluster world(TinyOptions(), Text(), 1, 1, 1);
  SampleOptions sample;
  sample.length = 8;
  const std::string expected = world[0].Generate(sample).value();
  sample.prompt.clear();
  EXPECT_EQ(world[0].Generate(sample).value(), expected);
}

TEST(Sampler, TensorParallelRanksWriteTheSameText) {
  Cluster world(TinyOptions(), Text(), 2, 2, 1);
  std::string texts[2];
  world.Each([&](Trainer& trainer) {
    auto text = trainer.Generate(SampleOptions{});
    if (text.ok()) texts[trainer.layout().tp_rank] = *text;
    return text.status();
  });
  EXPECT_EQ(texts[0].size(), 256u);
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace kintsugi::byte_lm
