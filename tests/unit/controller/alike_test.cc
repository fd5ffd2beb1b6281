#include "runtime/controller/alike.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

using Options = std::vector<std::string>;

TEST(Alike, NamesBothValuesOfEachOptionThatDiffers) {
  const Options theirs{"--save-every=50", "--silence=1", "--save-dir="}, ours{"--save-every=100", "--silence=1", "--save-dir=/s"};
  const std::vector<Unlike> unlike = FindUnlike(theirs, ours);
  ASSERT_EQ(unlike.size(), 2u);
  EXPECT_EQ(unlike[0].option, "--save-dir");
  EXPECT_EQ(unlike[0].theirs, "none");
  EXPECT_EQ(unlike[0].ours, "/s");
  const std::string why = WhyUnlike("node 1", theirs, "node 0", ours);
  EXPECT_NE(why.find("node 1 has --save-every 50, node 0 100"), std::string::npos) << why;
  EXPECT_NE(why.find("node 1 has --save-dir none, node 0 /s"), std::string::npos) << why;
}

TEST(Alike, WhatOneOfThemDoesNotNameIsNotCompared) {
  EXPECT_EQ(WhyUnlike("a", {}, "b", {"--save-every=1"}), "");
  EXPECT_EQ(WhyUnlike("a", {"--new=1", "--save-every=1"}, "b", {"--save-every=1"}), "");
  EXPECT_EQ(WhyUnlike("a", {"no option"}, "b", {"--save-every=1"}), "") << "and nothing that is none";
}

TEST(Alike, AValueMayHaveAnythingInIt) {
  EXPECT_EQ(FindUnlike({"--save-dir=/a=b"}, {"--save-dir=/a=c"}).at(0).theirs, "/a=b");
}

}  // namespace
}  // namespace kintsugi
