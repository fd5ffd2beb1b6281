// Values: names and scalars to bytes and back, and every way in which bytes are no values.
#include "callbacks/state/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "callbacks/state/registry.h"

namespace kintsugi {
namespace {

using Limits = std::numeric_limits<int64_t>;

void ExpectRefused(const Status& status, StatusCode code, const std::string& what) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
}

TEST(Values, ComeBackAsTheyWere) {
  Values values;
  ASSERT_TRUE(values.Set("consumed_samples", Limits::max()).ok());
  ASSERT_TRUE(values.Set("least", Limits::min()).ok());
  ASSERT_TRUE(values.Set("opt_param_scheduler.num_steps", 7).ok());
  ASSERT_TRUE(values.Set("opt_param_scheduler.max_lr", 0.1).ok());
  ASSERT_TRUE(values.Set("whole", 1.0).ok());
  ASSERT_TRUE(values.Set("tiny", 5e-324).ok());
  ASSERT_TRUE(values.Set("best_loss", std::numeric_limits<double>::infinity()).ok());
  ASSERT_TRUE(values.Set("worst", -std::numeric_limits<double>::infinity()).ok());
  ASSERT_TRUE(values.Set("style", "cosine \"Größe\"").ok());
  ASSERT_TRUE(values.Set("warm", true).ok());
  ASSERT_TRUE(values.Set("unset", std::monostate()).ok());
  const std::string bytes = values.Encode();
  EXPECT_TRUE(Values::AreIn(bytes));
  const auto back = Values::Decode(bytes);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, values);
  EXPECT_TRUE(std::holds_alternative<double>(*back->Find("whole")));
  EXPECT_TRUE(std::holds_alternative<int64_t>(*back->Find("opt_param_scheduler.num_steps")));
  EXPECT_EQ(back->Find("consumed"), nullptr);

  Values odd;
  ASSERT_TRUE(odd.Set("loss", std::nan("")).ok());
  const auto again = Values::Decode(odd.Encode());
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(std::isnan(std::get<double>(*again->Find("loss"))));
}

TEST(Values, HaveOneFormHoweverTheyWereSet) {
  Values one, other;
  ASSERT_TRUE(one.Set("b", 2).ok() && one.Set("a", 1).ok());
  ASSERT_TRUE(other.Set("a", 5).ok() && other.Set("b", 2).ok() && other.Set("a", 1).ok());
  EXPECT_EQ(one.Encode(), "kintsugi.values 1\n{\"a\":1,\"b\":2}");
  EXPECT_EQ(one.Encode(), other.Encode());
}

TEST(Values, RefuseNamesThatLeadThroughAValue) {
  Values values;
  ASSERT_TRUE(values.Set("args.consumed", 1).ok());
  ASSERT_TRUE(values.Set("args-more", 1).ok());  // between "args" and "args." in order
  ExpectRefused(values.Set("args", 2), StatusCode::kInvalidArgument, "hold 'args.consumed'");
  ExpectRefused(values.Set("args.consumed.more", 2), StatusCode::kInvalidArgument, "within 'args.consumed'");
  for (const char* name : {"", ".a", "a.", "a..b"})
    EXPECT_EQ(values.Set(name, 1).code(), StatusCode::kInvalidArgument) << name;
  ExpectRefused(values.Set("text", std::string("\xff")), StatusCode::kInvalidArgument, "no UTF-8");
  EXPECT_EQ(values.all().size(), 2u);
}

TEST(Values, RefuseBytesThatAreNone) {
  struct {
    std::string json, what;
  } const cases[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[]", "a list"},
      {"3", "the document: is 3"},
      {"{\"a\": [1]}", "a list"},
      {"{\"a\": {\"b\": 1}}", "other than"},
      {"{\"a\": {\"b\": \"inf\"}}", "other than"},
      {"{\"a\": {}}", "other than"},
      {"{\"a\": {\"float\": \"1\"}}", "other than"},
      {"{\"a\": {\"float\": {\"float\": \"inf\"}}}", "/a: is an object other than"},
      {"{\"a\": 1, \"a\": 1}", "twice"},
      {"{\"a\": 1, \"a.b\": 1}", "within 'a'"},
      {"{\"a\": 9223372036854775808}", "63 bits"},
      {"{\"\": 1}", "empty"},
      {"{\"a\": 1} x", "not JSON"},
      {std::string(1 << 20, '['), "levels"},
      {"{\"a\": " + std::string(1 << 20, '{'), ""},
  };
  for (const auto& one : cases) {
    const auto decoded = Values::Decode("kintsugi.values 1\n" + one.json);
    ASSERT_FALSE(decoded.ok()) << one.json.substr(0, 60);
    ExpectRefused(decoded.status(), StatusCode::kDataLoss, one.what);
  }
  ExpectRefused(Values::Decode("{\"a\": 1}").status(), StatusCode::kDataLoss, "do not begin");
}

TEST(Values, AreAMirroredObjectOfARegistry) {
  Values values;
  ASSERT_TRUE(values.Set("consumed_samples", 12).ok());
  StateRegistry registry;
  ASSERT_TRUE(registry.AddObject(ObjectOf("progress", &values)).ok());
  const std::vector<uint8_t> then = registry.CaptureMirrored();
  ASSERT_TRUE(values.Set("consumed_samples", 13).ok());
  ASSERT_TRUE(registry.RestoreMirrored(then).ok());
  EXPECT_EQ(std::get<int64_t>(*values.Find("consumed_samples")), 12);
  EXPECT_EQ(registry.objects().at("progress").take_over, TakeOver::kRankZero);

  std::vector<uint8_t> damaged;
  AppendMirrored("progress", {'x'}, &damaged);
  ExpectRefused(registry.RestoreMirrored(damaged), StatusCode::kDataLoss, "progress");
  EXPECT_EQ(std::get<int64_t>(*values.Find("consumed_samples")), 12);
}

}  // namespace
}  // namespace kintsugi
