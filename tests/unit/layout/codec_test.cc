#include "replica/layout/codec.h"

#include "replica/layout/metadata.pb.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/layout/world.h"

namespace kintsugi::layout {
namespace {

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Metadata Example() {
  MetadataBuilder builder;
  builder.AddRank(0);
  builder.AddRank(3);
  builder.AddTensor(0, Flat(Piece("w", {4, 6}, {0, 0}, {4, 3}, {0, 0}), 0, 7));
  builder.AddTensor(3, Piece("w", {4, 6}, {0, 3}, {4, 3}, {}));
  builder.AddTensor(3, Piece("w", {4, 6}, {0, 3}, {4, 3}, {-5, 1}));
  ShardedTensor grid = Piece("grid", {INT64_MAX}, {0}, {INT64_MAX});
  grid.dtype = DType::kBool;
  grid.axis_fragmentations = {1};
  grid.allow_shape_mismatch = true;
  builder.AddTensor(3, grid);
  builder.AddTensor(0, Piece("scalar", {}, {}, {}));
  builder.AddObject(3, Object("rng", {2}, {1}));
  builder.AddRefusal(3, {ErrorCode::kFlatRange, "w", {}, WholeBox(Shape{2, 3}), "flat range 3..1"});
  return builder.Build();
}

void ExpectRefused(wire::GlobalMetadata message, const std::function<void(wire::GlobalMetadata&)>& change,
                   const std::vector<std::string>& named, ErrorCode code = ErrorCode::kFormat) {
  change(message);
  const auto decoded = Decode(Bytes(message.SerializeAsString()));
  ASSERT_FALSE(decoded.ok()) << (named.empty() ? "" : named[0]);
  EXPECT_EQ(decoded.error().code, code) << decoded.error().message;
  EXPECT_EQ(decoded.error().ToStatus().code(), StatusCode::kDataLoss);
  for (const std::string& text : named) EXPECT_THAT(decoded.error().message, testing::HasSubstr(text));
}

TEST(Codec, GivesBackWhatItWasGiven) {
  const std::string bytes = Encode(Example());
  const auto decoded = Decode(Bytes(bytes));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(DigestOf(*decoded), DigestOf(Example()));
  EXPECT_EQ(Encode(*decoded), bytes);
  EXPECT_EQ(decoded->refusals, Example().refusals);
  EXPECT_TRUE(Decode(Bytes(Encode({}))).ok());
  Random random(8);
  for (int round = 0; round < 3000; ++round) {
    std::vector<RankShard> shards = RandomLayout("a", {}, random), more = RandomLayout("b", {}, random);
    shards.insert(shards.end(), more.begin(), more.end());
    const std::string text = Encode(BuildAll(shards));
    const auto again = Decode(Bytes(text));
    ASSERT_TRUE(again.ok()) << again.error().message;
    ASSERT_EQ(Encode(*again), text);
    ASSERT_EQ(Validate(*again), Validate(BuildAll(shards)));
  }
}

TEST(Codec, IsOneProtobufMessage) {
  wire::GlobalMetadata message;
  ASSERT_TRUE(message.ParseFromString(Encode(Example())));
  EXPECT_EQ(message.version(), kMetadataVersion);
  EXPECT_EQ(message.digest(), DigestOf(Example()));
  EXPECT_EQ(message.keys_size(), 4);
  EXPECT_EQ(message.SerializeAsString(), Encode(Example()));
}

TEST(Codec, RefusesWhatIsNotCanonicalOrNotWithinLimits) {
  wire::GlobalMetadata good;
  ASSERT_TRUE(good.ParseFromString(Encode(Example())));
  // Keys: grid, rng, scalar, w. Pieces of w: the left one flattened, then the right one with two holders.
  using Message = wire::GlobalMetadata;
  const auto w = [](Message& m) { return m.mutable_keys(3); };
  ExpectRefused(
      good, [](Message& m) { m.set_version(2); }, {"version 2", "version 1"}, ErrorCode::kVersion);
  ExpectRefused(
      good, [](Message& m) { m.set_digest(5); }, {"0000000000000005"}, ErrorCode::kDigest);
  ExpectRefused(
      good, [&](Message& m) { w(m)->set_length(0, 3); }, {"digest"}, ErrorCode::kDigest);
  ExpectRefused(good, [&](Message& m) { w(m)->set_name("a\nb"); }, {"control"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_name(""); }, {});
  ExpectRefused(good, [&](Message& m) { w(m)->set_name("a"); }, {"'a'", "after 'scalar'"});
  ExpectRefused(good, [](Message& m) { m.mutable_keys()->SwapElements(0, 1); }, {"'grid'", "after 'rng'"});
  ExpectRefused(good, [](Message& m) { *m.add_keys() = m.keys(3); }, {"after 'w'"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_kind(2); }, {"kind 2"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_dtype(21); }, {"dtype number 21"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_dtype(256); }, {"dtype number 256"});
  ExpectRefused(good,
                [&](Message& m) {
                  for (int i = 0; i < 7; ++i) w(m)->add_global_shape(1);
                },
                {"9 axes", "8"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_global_shape(0, UINT64_MAX); }, {"'w'", "63 bits"});
  ExpectRefused(good, [](Message& m) { m.mutable_keys(0)->set_fragments(0, 0); }, {"'grid'", "0 fragments"});
  ExpectRefused(good, [](Message& m) { m.mutable_keys(0)->set_is_grid(false); }, {"'grid'", "1 where 0"});
  ExpectRefused(good, [](Message& m) { m.mutable_keys(1)->set_dtype(0); }, {"'rng'", "object"});
  ExpectRefused(good, [](Message& m) { m.mutable_keys(1)->set_length(0, 2); }, {"'rng'", "one element"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_piece_count(0); }, {"no piece"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_piece_count(UINT32_MAX); }, {"lo: 4 where"});
  ExpectRefused(good, [&](Message& m) { w(m)->add_lo(1); }, {"lo: 5 where 4"});
  ExpectRefused(good, [&](Message& m) { w(m)->add_length(1); }, {"length: 5 where 4"});
  ExpectRefused(good, [&](Message& m) { w(m)->clear_flat_length(); }, {"flat_length: 0 where 2"});
  ExpectRefused(good, [&](Message& m) { w(m)->clear_flat_start(); }, {"flat_length: 2 where 0"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_flat_start(0, 0); }, {"none is flattened"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_flat_length(1, 3); }, {"piece 1"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_flat_length(0, UINT64_MAX); }, {"piece 0", "63 bits"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_flat_start(0, UINT64_MAX); }, {"piece 0", "63 bits"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_lo(0, UINT64_MAX); }, {"piece 0", "63 bits"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_lo(2, INT64_MAX); }, {"piece 1", "63 bits"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_lo(0, 1); }, {"piece 1", "after"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_holder_count(0, 0); }, {"rank: 3 where 2"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_holder_count(0, 0), w(m)->set_holder_count(1, 3); },
                {"piece 0", "nobody"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_rank(0, kRanksMax); }, {std::to_string(kRanksMax)});
  ExpectRefused(good, [&](Message& m) { w(m)->set_replica(0, 9); }, {"replica id number 9", "3"});
  ExpectRefused(good, [&](Message& m) { w(m)->set_rank(1, 4); }, {"piece 1", "order"});
  ExpectRefused(good, [](Message& m) { m.set_rank_gap(0, kRanksMax); }, {"rank", std::to_string(kRanksMax)});
  ExpectRefused(good, [](Message& m) { m.set_replica_id_length(0, 17); }, {"replica id 0"});
  ExpectRefused(good, [](Message& m) { m.add_replica_id(1); }, {"lengths add up"});
  ExpectRefused(good, [](Message& m) { m.add_replica_id_length(0); }, {"replica id 3", "after"});
  ExpectRefused(good, [](Message& m) { m.add_replica_id_length(1), m.add_replica_id(7); }, {"replica id 3", "nobody"});
  ExpectRefused(good, [](Message& m) { m.mutable_refusals(0)->set_code(0); }, {"code 0"});
  ExpectRefused(good, [](Message& m) { m.mutable_refusals(0)->set_code(1000); }, {"code 1000"});
  ExpectRefused(good, [](Message& m) { m.mutable_refusals(0)->set_message("a\xff"); }, {"no text"});
  ExpectRefused(good, [](Message& m) { m.mutable_refusals(0)->set_key("a\nb"); }, {"no text"});
  ExpectRefused(good, [](Message& m) { m.mutable_refusals(0)->add_lo(0); }, {"3 axes"});
  ExpectRefused(good, [](Message& m) { m.mutable_refusals(0)->set_has_region(false); }, {"2 axes"});
  ExpectRefused(good, [](Message& m) { m.add_refusals()->set_code(1), m.mutable_refusals(1)->set_message("x"); },
                {"after"});
}

TEST(Codec, PassesByWholeFieldsThatItDoesNotKnow) {
  using namespace std::string_literals;
  const std::string bytes = Encode(Example());
  // Field 100 in each form that protobuf has.
  for (const std::string& field :
       {"\xA0\x06\xAC\x02"s, "\xA1\x06\0\1\2\3\4\5\6\7"s, "\xA2\x06\x03xyz"s, "\xA5\x06\0\1\2\3"s}) {
    const auto decoded = Decode(Bytes(field + bytes));
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    EXPECT_EQ(Encode(*decoded), bytes);
    const auto cut = Decode(Bytes(bytes + field.substr(0, field.size() - 1)));
    ASSERT_FALSE(cut.ok());
    EXPECT_THAT(cut.error().message, testing::HasSubstr("field 100 at byte " + std::to_string(bytes.size())));
  }
  const auto group = Decode(Bytes(bytes + "\xA3\x06\xA4\x06"s));
  ASSERT_FALSE(group.ok());
  EXPECT_THAT(group.error().message, testing::HasSubstr("field 100")) << "groups are of no use any more";
}

TEST(Codec, BoundsItsInput) {
  const std::string bytes = Encode(Example());
  const auto decoded = Decode(Bytes(bytes), {.bytes_max = bytes.size() - 1});
  ASSERT_FALSE(decoded.ok());
  EXPECT_THAT(decoded.error().message, testing::HasSubstr(std::to_string(bytes.size()) + " bytes"));
  EXPECT_TRUE(Decode(Bytes(bytes), {.bytes_max = bytes.size()}).ok());
  EXPECT_EQ(Decode({}).error().code, ErrorCode::kVersion) << "nothing has no version";
}

}  // namespace
}  // namespace kintsugi::layout
