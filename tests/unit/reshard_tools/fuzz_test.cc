// Mutated specs: whatever stands in them, there is an answer or a refusal that says why, and no crash. Run under
// AddressSanitizer and UndefinedBehaviorSanitizer too.
#include "replica/layout/codec.h"
#include "replica/layout/validate.h"
#include "runtime/base/random.h"
#include "tests/unit/reshard_tools/specs.h"
#include "tools/reshard/aoa_spec.h"
#include "tools/reshard/distribute_spec.h"
#include "tools/reshard/picture.h"
#include "tools/reshard/plain_spec.h"
#include "tools/reshard/validate_answer.h"

namespace kintsugi::reshard {
namespace {

constexpr const char* kCells = R"({
  "tensors": [{"key": "w", "dtype": "bfloat16", "global_shape": [2, 4, 6]}, {"key": "s", "dtype": "int64", "global_shape": []}],
  "source": [{"rank": 0, "key": "w", "shape": [4, 3], "rank_offsets": [[0, 0, 2], [2, 0, 2]], "prepend_axis_num": 1},
             {"rank": 3, "key": "s", "offset": [], "shape": [], "replica_id": [0, 1]}],
  "target": [{"rank": 3, "key": "s", "offset": [], "shape": [], "flat": [0, 1]},
             {"rank": 1, "key": "w", "offset": [0, 1, 0], "shape": [1, 2, 3], "flat": [1, 5]}]})";

constexpr const char* kShards = R"({"ranks": 3, "shards": [
  {"key": "a", "offset": [0, 0], "flat": null, "bytes": 100, "holders": [0, 1, 2], "cross_group": false},
  {"key": "b", "offset": [0], "flat": [0, 4], "bytes": 400, "holders": [1, 0], "cross_group": true}]})";

constexpr const char* kExplain = R"({
  "statements": ["a, b -> s, axis=1", "s^T -> d, dtype='float64'", "f -> f2, fused_ffn", "r -> r2, reshape=[2, 2, 3]"], "reverse": false,
  "source": {"a": {"shape": [2, 2], "dtype": "float32", "shards": [{"offset": [0, 0], "shape": [2, 2]}]},
             "b": {"shape": [2, 2], "dtype": "float32"}, "f": {"shape": [2, 8], "dtype": "float32"}, "r": {"shape": [4, 3], "dtype": "int8"}},
  "destination": null, "queries": [{"key": "f2", "box": [[0, 2], [3, 5]]}, {"key": "r2", "box": [[0, 1], [0, 2], [0, 3]]}]})";

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string Mutate(const std::string& text) {
    if (random_.Chance(0.3)) return MutateBytes(text);
    Json document = Json::parse(text);
    for (uint64_t count = 1 + Below(3); count > 0; --count) Change(&document);
    return document.dump();
  }

 private:
  uint64_t Below(uint64_t bound) { return random_.Below(bound); }

  std::string MutateBytes(std::string text) {
    for (uint64_t count = 1 + Below(4); count > 0 && !text.empty(); --count) {
      const size_t at = Below(text.size());
      switch (Below(4)) {
        case 0:
          text[at] = static_cast<char>(Below(256));
          break;
        case 1:
          text.erase(at, 1 + Below(6));
          break;
        case 2:
          text.insert(at, text.substr(Below(text.size()), Below(20)));
          break;
        default:
          text[at] = "[]{},:\"0-9e.\\"[Below(13)];
          break;
      }
    }
    return text;
  }

  // Walks down to some value and changes it.
  void Change(Json* value) {
    while (value->is_structured() && !value->empty() && random_.Chance(0.85)) {
      auto at = value->begin();
      std::advance(at, static_cast<std::ptrdiff_t>(Below(value->size())));
      if (random_.Chance(0.06)) {
        value->erase(at);
        return;
      }
      value = &*at;
    }
    if (value->is_array() && !value->empty() && random_.Chance(0.6)) {
      const Json copy = (*value)[Below(value->size())];
      value->push_back(copy);
      return;
    }
    *value = Odd(*value);
  }

  Json Odd(const Json& before) {
    static const std::vector<int64_t> numbers = {0,
                                                 1,
                                                 2,
                                                 3,
                                                 4,
                                                 5,
                                                 6,
                                                 12,
                                                 -1,
                                                 -7,
                                                 1 << 20,
                                                 INT32_MAX,
                                                 int64_t{1} << 32,
                                                 int64_t{1} << 61,
                                                 int64_t{1} << 62,
                                                 INT64_MAX,
                                                 INT64_MIN};
    switch (Below(9)) {
      case 0:
        return Json();
      case 1:
        return Json::array();
      case 2:
        return Json::object();
      case 3:
        return 1.5;
      case 4:
        return random_.Chance(0.5);
      case 5:
        return UINT64_MAX;
      case 6:
        return std::vector<std::string>{
            "", "w", "float64", "a -> b", "x[0:3] -> y", "a -> _", "\xc3\xbc", "w\n"}[Below(8)];
      case 7:
        return std::vector<int64_t>(Below(11), numbers[Below(numbers.size())]);
      default:
        return before.is_number() && random_.Chance(0.3) ? Json(before.get<int64_t>() + 1)
                                                         : Json(numbers[Below(numbers.size())]);
    }
  }

  Random random_;
};

struct Counts {
  int answers = 0, refusals = 0;
  void Add(bool is_answer) { ++(is_answer ? answers : refusals); }
};

void ExpectRefusal(const AnswerRefusal& refusal) {
  const Json json = Json::parse(refusal.ToJson());
  ASSERT_FALSE(json["ok"].get<bool>());
  ASSERT_FALSE(json["error"]["message"].get<std::string>().empty());
  ASSERT_FALSE(json["error"]["code"].get<std::string>().empty());
}

void TryPlan(const std::string& text, const ReshardQuestion& question, Counts* counts) {
  const auto answer = Answer(text, question);
  counts->Add(answer.ok());
  if (!answer.ok()) return ExpectRefusal(answer.error());
  const ReshardAnswer& plan = *answer;
  const Json json = Json::parse(plan.ToJson());
  ASSERT_TRUE(json["ok"].get<bool>() && json["checked"].get<bool>());
  ASSERT_EQ(json["moves"].size(), plan.moves.size());
  ASSERT_FALSE(plan.ToTable().empty());
  const auto drawn = DrawMoves(plan, "");
  ASSERT_TRUE(drawn.ok() || !drawn.status().message().empty());
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// What the fast reader takes, it takes as the other one does, which reads names with escapes.
void TryBothReaders(const std::string& text, Counts* counts) {
  std::string copy = text;
  const auto plain = ReadPlainSpec(&copy, SpecSides::kBoth);
  ASSERT_EQ(copy, text);
  counts->Add(plain.has_value());
  if (!plain) return;
  std::string odd = Replaced(text, "\"rank\"", R"("\u0072ank")");
  ASSERT_TRUE(plain->source.holders.empty() || !ReadPlainSpec(&odd, SpecSides::kBoth));
  const auto other = ReadLayoutSpec(odd, SpecSides::kBoth);
  ASSERT_TRUE(other.ok()) << other.status().message() << "\n" << text;
  ASSERT_EQ(plain->hosts, other.value().hosts);
  ASSERT_EQ(Encode(plain->source), Encode(other.value().source)) << text;
  ASSERT_EQ(Encode(plain->target), Encode(other.value().target)) << text;
}

void TryValidate(const std::string& text, Counts* counts) {
  const auto spec = ReadLayoutSpec(text, SpecSides::kSource);
  if (!spec.ok()) return;
  const auto errors = Validate(spec.value().source);
  counts->Add(errors.empty());
  if (!errors.empty()) return ExpectRefusal(LayoutRefusal(errors.front()));
  ASSERT_TRUE(Json::parse(ValidateJson(spec.value().source, true))["ok"].get<bool>());
}

void TryDistribute(const std::string& text, Counts* counts) {
  const auto document = JsonDocument::Parse(text);
  if (!document.ok()) return counts->Add(false);
  const auto spec = ReadDistributeSpec(document->Root());
  if (!spec.ok()) return counts->Add(false);
  for (const auto policy : {plan::DistributionPolicy::kMegatron, plan::DistributionPolicy::kBalanced}) {
    const auto made = Distribute(spec.value().shards, spec.value().ranks, policy);
    counts->Add(made.ok());
    if (!made.ok()) return ExpectRefusal(LayoutRefusal(made.error()));
    ASSERT_TRUE(Json::parse(DistributeJson(*made))["ok"].get<bool>());
  }
}

void TryExplain(const std::string& text, Counts* counts) {
  const auto document = JsonDocument::Parse(text);
  if (!document.ok()) return counts->Add(false);
  auto spec = ReadAoaSpec(document->Root());
  if (!spec.ok()) return counts->Add(false);
  const auto answer = AnswerAoa(std::move(*spec));
  counts->Add(answer.ok());
  if (!answer.ok()) return ExpectRefusal(answer.error());
  ASSERT_TRUE(Json::parse(answer->ToJson())["ok"].get<bool>());
}

constexpr uint64_t kRuns = 6000;

TEST(SpecFuzz, LayoutsAreAnsweredOrRefused) {
  Counts plain, renamed, validated, fast;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Mutator mutator(seed);
    const std::string text = mutator.Mutate(seed % 3 == 0 ? kCells : kColumnsToRows);
    TryPlan(text, {}, &plain);
    TryValidate(text, &validated);
    TryBothReaders(text, &fast);
    TryPlan(mutator.Mutate(kRenamed), Renamed(), &renamed);
    if (HasFatalFailure()) return;
  }
  for (const Counts& counts : {plain, renamed, validated, fast}) {
    EXPECT_GT(counts.answers, 100);
    EXPECT_GT(counts.refusals, 300);
  }
}

TEST(SpecFuzz, ShardsAreDistributedOrRefused) {
  Counts counts;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TryDistribute(Mutator(seed).Mutate(kShards), &counts);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(counts.answers, 500);
  EXPECT_GT(counts.refusals, 1000);
}

TEST(SpecFuzz, ProgramsAreExplainedOrRefused) {
  Counts counts;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TryExplain(Mutator(seed).Mutate(kExplain), &counts);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(counts.answers, 200);
  EXPECT_GT(counts.refusals, 1000);
}

}  // namespace
}  // namespace kintsugi::reshard
