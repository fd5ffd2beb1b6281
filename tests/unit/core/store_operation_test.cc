// What reads and writes a key of the rendezvous store in one go.
#include "runtime/core/store_operation.h"

#include <gtest/gtest.h>

#include "runtime/core/store_table.h"

namespace kintsugi::core {
namespace {

using Kind = StoreOperation::Kind;
using Bytes = StoreOperation::Bytes;

Header From(int rank) { return {Term{1, 1}, Generation(1), Rank(rank), Incarnation(1)}; }
Bytes Text(std::string_view text) { return Bytes(text.begin(), text.end()); }
std::string Words(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }

class StoreOperations : public ::testing::Test {
 protected:
  StoreOperations() { (void)store_.Advance(Generation(1)); }

  // The answer of one operation, or "refused: " and why.
  std::string Do(Kind kind, const std::string& key, const Bytes& operand, const std::string& id = "") {
    const StoreOperation operation(kind, id.empty() ? "id" + std::to_string(next_++) : id, key);
    (void)store_.Set(From(0), {operation.SetKey(), operand});
    const auto answers = store_.Get(From(0), {1, operation.AnswerKey()});
    if (answers.size() != 1) return "nothing";
    const auto read = StoreOperation::Read(answers[0].reply.value);
    return read.ok() ? Words(*read) : "refused: " + read.status().message();
  }
  std::string CompareSet(const std::string& key, std::string_view expected, std::string_view desired) {
    return Do(Kind::kCompareSet, key, StoreOperation::CompareSetOperand(Text(expected), Text(desired)));
  }
  bool IsThere(const std::string& key) {
    const auto answers = store_.Get(From(0), {2, StoreOperation::PresenceKey(key)});
    return answers.size() == 1 && answers[0].reply.value == Text("1");
  }
  std::string Value(const std::string& key) { return Words(store_.Get(From(0), {3, key}).at(0).reply.value); }

  StoreTable store_;
  int next_ = 0;
};

TEST_F(StoreOperations, CountsFromNothing) {
  EXPECT_EQ(Do(Kind::kAdd, "n", Text("3")), "3");
  EXPECT_EQ(Do(Kind::kAdd, "n", Text("-5")), "-2");
  EXPECT_EQ(Value("n"), "-2");
  (void)store_.Set(From(1), {"n", Text("40")});
  EXPECT_EQ(Do(Kind::kAdd, "n", Text("2")), "42");
}

TEST_F(StoreOperations, AreDoneOnceHoweverOftenTheyAreTold) {
  EXPECT_EQ(Do(Kind::kAdd, "n", Text("1"), "same"), "1");
  EXPECT_EQ(Do(Kind::kAdd, "n", Text("1"), "same"), "1");
  EXPECT_EQ(Do(Kind::kAdd, "n", Text("1"), "other"), "2");
  EXPECT_EQ(Do(Kind::kAdd, "n", Text("1"), "same"), "1");
  EXPECT_EQ(Value("n"), "2");
}

TEST_F(StoreOperations, RefuseWhatIsNoNumberAndLeaveIt) {
  (void)store_.Set(From(0), {"word", Text("seven")});
  EXPECT_EQ(Do(Kind::kAdd, "word", Text("1")), "refused: holds no number that could be added to");
  EXPECT_EQ(Value("word"), "seven");
  (void)store_.Set(From(0), {"full", Text("9223372036854775807")});
  EXPECT_EQ(Do(Kind::kAdd, "full", Text("1")), "refused: would count beyond 64 bits");
  EXPECT_EQ(Value("full"), "9223372036854775807");
  EXPECT_EQ(Do(Kind::kAdd, "n", Text("1x")), "refused: was to be added something that is no number");
  EXPECT_FALSE(IsThere("n"));
}

TEST_F(StoreOperations, SetWhereWhatIsThereWasExpected) {
  EXPECT_EQ(CompareSet("a", "x", "y"), "x") << "it is absent: the answer is what was expected";
  EXPECT_FALSE(IsThere("a"));
  EXPECT_EQ(CompareSet("a", "", "first"), "first");
  EXPECT_EQ(CompareSet("a", "", "second"), "first");
  EXPECT_EQ(CompareSet("a", "first", "third"), "third");
  EXPECT_EQ(Value("a"), "third");
}

TEST_F(StoreOperations, CompareNothingFromABrokenOperand) {
  EXPECT_EQ(Do(Kind::kCompareSet, "a", Text("short")), "refused: was compared with nothing");
  EXPECT_EQ(Do(Kind::kCompareSet, "a", Text("\xff\xff\xff\xff\xff\xff\xff\xff")),
            "refused: was compared with less than was said");
  EXPECT_FALSE(IsThere("a"));
}

TEST_F(StoreOperations, DeleteAndSayWhetherItWasThere) {
  EXPECT_EQ(Do(Kind::kDelete, "a", {}), "0");
  (void)store_.Set(From(0), {"a", Text("1")});
  EXPECT_TRUE(IsThere("a"));
  EXPECT_EQ(Do(Kind::kDelete, "a", {}), "1");
  EXPECT_FALSE(IsThere("a"));
  EXPECT_TRUE(store_.Get(From(0), {9, "a"}).empty()) << "who reads a deleted key waits for a new value";
}

TEST_F(StoreOperations, AnswerReadsThatWaitForTheKey) {
  EXPECT_TRUE(store_.Get(From(1), {7, "n"}).empty());
  const StoreOperation operation(Kind::kAdd, "id", "n");
  EXPECT_TRUE(store_.Get(From(0), {8, operation.AnswerKey()}).empty());
  const auto answers = store_.Set(From(0), {operation.SetKey(), Text("5")});
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].rank, Rank(1));
  EXPECT_EQ(Words(answers[0].reply.value), "5");
  EXPECT_EQ(answers[1].reply.request, 8u);
}

TEST(StoreOperation, IsReadFromAKeyAndNothingElseIs) {
  const auto parsed = StoreOperation::Parse(StoreOperation(Kind::kDelete, "3.1.7", "a key/\x02").SetKey());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->key(), "a key/\x02");
  EXPECT_EQ(parsed->AnswerKey(), StoreOperation(Kind::kDelete, "3.1.7", "").AnswerKey());
  const std::string mark = "\x01";
  for (const std::string& key :
       {std::string(), std::string("a"), mark, mark + "a", mark + "a" + mark + "k", mark + "zid" + mark + "k",
        mark + "aid", mark + "aid" + mark + mark + "aid" + mark + "k"})
    EXPECT_FALSE(StoreOperation::Parse(key)) << key;
  EXPECT_EQ(StoreOperation::ParsePresence(StoreOperation::PresenceKey("k")), "k");
  EXPECT_FALSE(StoreOperation::ParsePresence("k"));
}

}  // namespace
}  // namespace kintsugi::core
