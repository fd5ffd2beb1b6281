// Random bytes, mutated bytes and mutated messages: an error that says something, never a crash, and whatever is
// accepted is canonical and can be judged.
#include <functional>

#include "replica/layout/codec.h"
#include "replica/layout/merge.h"
#include "replica/layout/metadata.pb.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/layout/world.h"

namespace kintsugi::layout {
namespace {

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Whether it was accepted. The digest would refuse nearly every mutation, so the reader is also tried without it: a
// stranger can compute a digest too.
bool Try(const std::string& bytes) {
  const auto checked = Decode(Bytes(bytes));
  const auto decoded = Decode(Bytes(bytes), {.check_digest = false});
  EXPECT_TRUE(decoded.ok() || !checked.ok());
  if (!decoded.ok()) {
    EXPECT_GE(decoded.error().code, ErrorCode::kFormat);
    EXPECT_FALSE(decoded.error().message.empty());
    EXPECT_EQ(checked.error(), decoded.error());
    return false;
  }
  EXPECT_LE(decoded->piece_count(), bytes.size());
  const auto verdict = Validate(*decoded, {.world_size = 5});
  for (const LayoutError& error : verdict) EXPECT_FALSE(error.message.empty());
  EXPECT_EQ(Validate(Merge(*decoded, {}), {.world_size = 5}), verdict);
  // What was accepted is canonical: it reads back as it is written, digest and all.
  const std::string again = Encode(*decoded);
  const auto reread = Decode(Bytes(again));
  EXPECT_TRUE(reread.ok() && Encode(*reread) == again) << (reread.ok() ? "" : reread.error().message);
  return true;
}

std::string ValidBytes(Random& random) {
  std::vector<RankShard> shards;
  for (const char* key : {"a", "b.c", "w"}) {
    const auto more = RandomLayout(key, {.ranks = 5}, random);
    shards.insert(shards.end(), more.begin(), more.end());
  }
  MetadataBuilder builder;
  for (int32_t rank = 0; rank < 5; ++rank) builder.AddRank(rank);
  for (const RankShard& shard : shards) builder.AddTensor(shard.rank, shard.tensor);
  builder.AddObject(1, Object("o", {2, 2}, {0, 1}));
  if (random.Chance(0.3)) builder.AddRefusal(2, {ErrorCode::kKey, "bad", {}, WholeBox(Shape{2}), "no key"});
  return Encode(builder.Build());
}

TEST(CodecFuzz, RandomBytesAreRefused) {
  Random random(1);
  for (int round = 0; round < 50'000; ++round) {
    std::string bytes(random.Below(64), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Next());
    // Half of them get a good start: the version, then anything.
    if (random.Chance(0.5)) bytes.insert(0, "\x08\x01", 2);
    Try(bytes);
    if (HasFailure()) return;
  }
}

TEST(CodecFuzz, MutatedBytesAreRefusedOrStillMetadata) {
  Random random(2);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::string bytes = ValidBytes(random);
    for (uint64_t edits = 1 + random.Below(4); edits > 0 && !bytes.empty(); --edits) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(5)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8)));
          break;
        case 1:
          bytes[at] = static_cast<char>(random.Next());
          break;
        case 2:
          bytes.erase(at, 1 + random.Below(4));
          break;
        case 3:
          bytes.insert(at, bytes.substr(random.Below(bytes.size()), random.Below(40)));
          break;
        default:
          bytes.resize(at);
      }
    }
    ++(Try(bytes) ? accepted : refused);
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 2'000);
}

uint64_t Hostile(uint64_t value, Random& random) {
  switch (random.Below(6)) {
    case 0:
      return 0;
    case 1:
      return UINT64_MAX;
    case 2:
      return INT64_MAX;
    case 3:
      return value ^ (uint64_t{1} << random.Below(64));
    case 4:
      return value - 1;
    default:
      return value + 1;
  }
}

template <typename Column>
void Mutate(Column* column, Random& random) {
  if (column->empty() || random.Chance(0.1)) {
    column->Add(static_cast<typename Column::value_type>(random.Next()));
    return;
  }
  if (random.Chance(0.1)) return column->RemoveLast();
  auto& value = (*column)[static_cast<int>(random.Below(static_cast<uint64_t>(column->size())))];
  value = static_cast<typename Column::value_type>(Hostile(static_cast<uint64_t>(value), random));
}

void Mutate(wire::Key* key, Random& random) {
  switch (random.Below(14)) {
    case 0:
      return Mutate(key->mutable_global_shape(), random);
    case 1:
      return Mutate(key->mutable_fragments(), random);
    case 2:
      return Mutate(key->mutable_lo(), random);
    case 3:
      return Mutate(key->mutable_length(), random);
    case 4:
      return Mutate(key->mutable_flat_start(), random);
    case 5:
      return Mutate(key->mutable_flat_length(), random);
    case 6:
      return Mutate(key->mutable_holder_count(), random);
    case 7:
      return Mutate(key->mutable_rank(), random);
    case 8:
      return Mutate(key->mutable_replica(), random);
    case 9:
      return key->set_piece_count(static_cast<uint32_t>(Hostile(key->piece_count(), random)));
    case 10:
      return key->set_dtype(static_cast<uint32_t>(random.Below(20)));
    case 11:
      return key->set_kind(static_cast<uint32_t>(random.Below(3)));
    case 12:
      return key->set_is_grid(!key->is_grid());
    default:
      return key->set_name(key->name() + "x");
  }
}

TEST(CodecFuzz, MutatedMessagesAreRefusedOrStillMetadata) {
  Random random(3);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    wire::GlobalMetadata message;
    ASSERT_TRUE(message.ParseFromString(ValidBytes(random)));
    for (uint64_t edits = 1 + random.Below(2); edits > 0; --edits) {
      const uint64_t which = random.Below(10);
      if (which == 0)
        Mutate(message.mutable_rank_gap(), random);
      else if (which == 1)
        Mutate(message.mutable_replica_id(), random);
      else if (which == 2)
        Mutate(message.mutable_replica_id_length(), random);
      else
        Mutate(message.mutable_keys(static_cast<int>(random.Below(static_cast<uint64_t>(message.keys_size())))),
               random);
    }
    ++(Try(message.SerializeAsString()) ? accepted : refused);
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 2'000);
}

}  // namespace
}  // namespace kintsugi::layout
