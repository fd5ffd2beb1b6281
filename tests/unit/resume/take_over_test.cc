#include "replica/resume/take_over.h"

#include <gtest/gtest.h>

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
