#include "replica/layout/request.h"

#include "tests/unit/layout/world.h"

namespace kintsugi::layout {
namespace {

std::optional<LayoutError> Check(const Metadata& stored, const Metadata& requested,
                                 const RequestOptions& options = {}) {
  const auto errors = CheckRequest(stored, requested, options);
  return errors.empty() ? std::nullopt : std::optional(errors.front());
}

Metadata Stored() {
  World world;
  for (char name = 'a'; name < 'l'; ++name) world.Add(0, Piece(std::string(1, name), {4, 2}, {0, 0}, {4, 2}));
  return world.Build();
}

TEST(CheckRequest, TakesAnotherCutOfTheSameTensor) {
  EXPECT_FALSE(Check(
      Stored(), World().Add(0, Piece("a", {4, 2}, {0, 0}, {4, 1})).Add(5, Piece("a", {4, 2}, {1, 1}, {2, 1})).Build()));
}

TEST(CheckRequest, ListsWhatIsStoredWhereAKeyIsNot) {
  ExpectError(Check(Stored(), World().Add(2, Piece("z", {4}, {0}, {4})).Build()), ErrorCode::kUnexpected, "z", {2},
              "[[0, 4)]", {"'a', 'b', 'c'", "and 3 more"});
  ExpectError(Check({}, World().Add(2, Piece("z", {4}, {0}, {4})).Build()), ErrorCode::kUnexpected, "z", {2},
              "[[0, 4)]", {"stored is nothing"});
}

TEST(CheckRequest, NamesBothShapesUnlessAnotherIsFine) {
  ShardedTensor larger = Piece("a", {6, 2}, {0, 0}, {6, 2});
  ExpectError(Check(Stored(), World().Add(2, larger).Build()), ErrorCode::kStoredShape, "a", {2}, "[[0, 6), [0, 2)]",
              {"stored with global shape [4, 2]", "asked for with [6, 2]"});
  larger.allow_shape_mismatch = true;
  EXPECT_FALSE(Check(Stored(), World().Add(2, larger).Build()));
  ShardedTensor flat = Piece("a", {8}, {0}, {8});
  flat.allow_shape_mismatch = true;
  ExpectError(Check(Stored(), World().Add(2, flat).Build()), ErrorCode::kStoredShape, "a", {2}, "[[0, 8)]",
              {"[4, 2]", "[8]"});
}

// Defect 17: another dtype is cast without a word.
TEST(Defects, AnotherDTypeIsAnErrorUnlessACastWasAskedFor) {
  ShardedTensor half = Piece("a", {4, 2}, {0, 0}, {4, 2});
  half.dtype = DType::kBFloat16;
  const Metadata requested = World().Add(1, half).Build();
  ExpectError(Check(Stored(), requested), ErrorCode::kStoredDType, "a", {1}, "[[0, 4), [0, 2)]",
              {"float32", "bfloat16"});
  EXPECT_FALSE(Check(Stored(), requested, {.allow_cast = true}));
}

TEST(CheckRequest, NamesAnotherKind) {
  ExpectError(Check(Stored(), World().Add(1, Object("a")).Build()), ErrorCode::kStoredKind, "a", {1}, "[]",
              {"object 'a'", "tensor 'a'"});
}

TEST(CheckRequest, GivesOneErrorPerKeyUpToTheLimit) {
  World world;
  for (const char* key : {"x", "y", "z"}) world.Add(0, Piece(key, {1}, {0}, {1}));
  const Metadata requested = world.Build();
  EXPECT_EQ(CheckRequest(Stored(), requested).size(), 3u);
  EXPECT_EQ(CheckRequest(Stored(), requested, {.errors_max = 2}).size(), 2u);
}

}  // namespace
}  // namespace kintsugi::layout
