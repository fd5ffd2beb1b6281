#include "replica/resume/take_over.h"

#include <gtest/gtest.h>

#include "callbacks/state/key.h"

namespace kintsugi::resume {
namespace {

using Bytes = std::vector<uint8_t>;

struct Holder {
  Bytes bytes = {99};
};

ShardedObject Object(Holder* holder, const std::string& key, TakeOver how) {
  ShardedObject object{key, ObjectKind::kMirrored,
                       [](void* self, Bytes* out) {
                         const Bytes& bytes = static_cast<Holder*>(self)->bytes;
                         out->insert(out->end(), bytes.begin(), bytes.end());
                       },
                       [](void* self, const uint8_t* data, uint64_t size) {
                         static_cast<Holder*>(self)->bytes.assign(data, data + size);
                         return Status::Ok();
                       },
                       holder};
  object.take_over = how;
  return object;
}

// Every rank saved its own number under every key.
Result<std::map<std::string, Bytes>> Saved(Rank rank) {
  std::map<std::string, Bytes> objects;
  for (const char* key : {"derived", "own", "same", "zero"}) objects[key] = {static_cast<uint8_t>(rank.value() + 10)};
  return objects;
}

TEST(TakeOver, EachObjectGoesOnAsItSays) {
  Holder derived, own, same, zero;
  StateRegistry registry;
  ASSERT_TRUE(registry.AddObject(Object(&derived, "derived", TakeOver::kDerived)).ok());
  ASSERT_TRUE(registry.AddObject(Object(&same, "same", TakeOver::kSameRank)).ok());
  ASSERT_TRUE(registry.AddObject(Object(&zero, "zero", TakeOver::kRankZero)).ok());
  ShardedObject sum = Object(&own, "own", TakeOver::kOwn);
  sum.take_over_all = [](void*, const std::vector<SavedObject>& saved, Bytes* out) {
    for (const SavedObject& one : saved) out->push_back(one.data[0]);
    return Status::Ok();
  };
  ASSERT_TRUE(registry.AddObject(sum).ok());
  const auto taken = TakeOverObjects(registry, Rank(1), {Rank(0), Rank(1), Rank(2)}, Saved);
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  ASSERT_TRUE(registry.RestoreMirrored(*taken).ok());
  EXPECT_EQ(derived.bytes, Bytes{99});
  EXPECT_EQ(same.bytes, Bytes{11});
  EXPECT_EQ(zero.bytes, Bytes{10});
  EXPECT_EQ(own.bytes, (Bytes{10, 11, 12}));

  StateRegistry refusing;
  sum.take_over_all = [](void*, const std::vector<SavedObject>&, Bytes*) {
    return Status(StatusCode::kInvalidArgument, "three are too many");
  };
  ASSERT_TRUE(refusing.AddObject(sum).ok());
  const auto refused = TakeOverObjects(refusing, Rank(1), {Rank(0), Rank(1), Rank(2)}, Saved);
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition) << "the checkpoint does not fit the trainer";
  EXPECT_EQ(refused.status().message(), "object 'own': three are too many");
}

// Two ranks saved two cells, one of them a second copy; three ranks of another layout ask for them.
TEST(TakeOver, ACellComesFromWhoeverSavedIt) {
  const auto saved = [](Rank rank) -> Result<std::map<std::string, Bytes>> {
    const std::string place = rank == Rank(1) ? "1.0" : "0.0";
    return std::map<std::string, Bytes>{{"scale/shard_" + place + "_2.1", {static_cast<uint8_t>(rank.value() + 10)}}};
  };
  const std::vector<Rank> ranks = {Rank(0), Rank(1), Rank(2)};
  Holder first, second;
  StateRegistry registry;
  ASSERT_TRUE(registry.AddObject(Object(&first, "scale/shard_0.0_2.1", TakeOver::kCell)).ok());
  ASSERT_TRUE(registry.AddObject(Object(&second, "scale/shard_1.0_2.1", TakeOver::kCell)).ok());
  const auto taken = TakeOverObjects(registry, Rank(7), ranks, saved);
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  ASSERT_TRUE(registry.RestoreMirrored(*taken).ok());
  EXPECT_EQ(first.bytes, Bytes{10});
  EXPECT_EQ(second.bytes, Bytes{11});

  StateRegistry wider;
  ASSERT_TRUE(wider.AddObject(Object(&first, "scale/shard_1.0_4.1", TakeOver::kCell)).ok());
  const std::string refused = TakeOverObjects(wider, Rank(0), ranks, saved).status().message();
  EXPECT_NE(
      refused.find("object 'scale/shard_1.0_4.1' was saved by no rank: the checkpoint has 'scale/shard_0.0_2.1' to "
                   "'scale/shard_1.0_2.1', and cells of a grid are neither cut nor joined"),
      std::string::npos)
      << refused;
  StateRegistry other;
  ASSERT_TRUE(other.AddObject(Object(&first, "bias/shard_0_1", TakeOver::kCell)).ok());
  EXPECT_NE(TakeOverObjects(other, Rank(0), ranks, saved).status().message().find("nothing of 'bias' is in"),
            std::string::npos);
}

TEST(TakeOver, ACellsKeyNamesIt) {
  EXPECT_EQ(GridName("a/b/shard_0.1_2.2"), "a/b");
  EXPECT_EQ(GridName("a/shard_0_1/shard_3_4"), "a/shard_0_1");
  for (const char* key : {"a", "a/shard_", "a/shard_0", "a/shard_0_", "a/shard__1", "a/shard_0.1_2", "a/shard_.0_1.1",
                          "a/shard_0._1.1", "a/shard_0..1_1.1.1", "a/shard_x_1", "a/shard_0_1_2", "/shard_-1_2",
                          "/shard_0_1", "a/shard_2_2", "a/shard_0.3_2.3", "a/shard_0_99999999999999999999"})
    EXPECT_EQ(GridName(key), "") << key;
  Holder holder;
  StateRegistry registry;
  const Status refused = registry.AddObject(Object(&holder, "scale", TakeOver::kCell));
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("its key must name"), std::string::npos);
}

TEST(TakeOver, NamesTheObjectWhoseRankSavedNothing) {
  Holder same;
  StateRegistry registry;
  ASSERT_TRUE(registry.AddObject(Object(&same, "same", TakeOver::kSameRank)).ok());
  const Status refused = TakeOverObjects(registry, Rank(5), {Rank(0), Rank(1)}, Saved).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("object 'same' is to come from rank 5, which saved nothing"), std::string::npos)
      << refused.ToString();
}

TEST(TakeOver, SilenceIsAnErrorAlsoOfDerivedObjects) {
  StateRegistry registry;
  ASSERT_TRUE(registry.AddObject({.key = "schedule", .kind = ObjectKind::kDerived}).ok());
  EXPECT_NE(CheckTakeOver(registry).message().find("object 'schedule' does not say"), std::string::npos);
  ASSERT_TRUE(registry.AddObject({.key = "warmup", .kind = ObjectKind::kDerived}).ok());
  EXPECT_NE(CheckTakeOver(registry).message().find("with other ranks (nor does 'warmup'): say"), std::string::npos)
      << CheckTakeOver(registry).message();
}

TEST(TakeOver, AnObjectsOwnWayNeedsAFunctionAndADerivedOneHasNoBytes) {
  Holder holder;
  StateRegistry registry;
  EXPECT_EQ(registry.AddObject(Object(&holder, "own", TakeOver::kOwn)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(registry.AddObject({.key = "d", .kind = ObjectKind::kDerived, .take_over = TakeOver::kSameRank}).code(),
            StatusCode::kInvalidArgument);
}

TEST(TakeOver, FramesComeBackAndTornOnesAreRefused) {
  Bytes framed;
  AppendMirrored("a", {1, 2}, &framed);
  AppendMirrored("b", {}, &framed);
  const auto objects = UnpackMirrored(framed);
  ASSERT_TRUE(objects.ok());
  EXPECT_EQ(*objects, (std::map<std::string, Bytes>{{"a", {1, 2}}, {"b", {}}}));
  for (size_t size = 1; size < framed.size(); ++size)
    if (size != 8 + 1 + 8 + 2) {
      EXPECT_EQ(
          UnpackMirrored(Bytes(framed.begin(), framed.begin() + static_cast<std::ptrdiff_t>(size))).status().code(),
          StatusCode::kDataLoss)
          << size;
    }
}

}  // namespace
}  // namespace kintsugi::resume
