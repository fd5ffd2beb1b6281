// Hostile manifests: the seal is right, the content is not. One that can write the files can seal them, so nothing in
// them is trusted: never a crash, never other bytes under a name that was asked for.
#include "replica/save/manifest.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "replica/save/seal.h"
#include "runtime/base/random.h"
#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

using Json = nlohmann::json;

std::string Text(MemoryFileSystem& files, const std::string& path) {
  const auto& bytes = files.Content(path);
  return {bytes.begin(), bytes.end()};
}

void Put(MemoryFileSystem& files, const std::string& path, const std::string& text) {
  files.Content(path).assign(text.begin(), text.end());
}

TEST(Seal, IsJsonThatComesBackAndNoBitOfItMayChange) {
  const std::string body = R"({"a":[1,2],"b":"x"})";
  const std::string text = Seal(body);
  EXPECT_EQ(Json::parse(text).at("body"), Json::parse(body));
  EXPECT_EQ(*SealedBody(text, "f"), body);
  EXPECT_TRUE(Unseal(text, "f").ok());
  for (size_t at = 0; at < text.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      ASSERT_EQ(Unseal(damaged, "f").status().code(), StatusCode::kDataLoss) << at << ' ' << bit;
    }
  for (size_t size = 0; size < text.size(); ++size) ASSERT_FALSE(Unseal(text.substr(0, size), "f").ok());
}

TEST(Unseal, SaysWhatIsNoJsonOrNestedTooDeepAndWhatToDo) {
  const auto nested = [](size_t depth) {
    return Seal("{\"a\":" + std::string(depth - 1, '[') + "1" + std::string(depth - 1, ']') + "}");
  };
  EXPECT_TRUE(Unseal(nested(8), "f").ok());
  for (const std::string& bad : {nested(9), Seal(""), Seal("{\"a\":1,}"), Seal(R"({"a":1,"a":1})")}) {
    const Status status = Unseal(bad, "f").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << bad;
    EXPECT_TRUE(Names(status.message(), "'f': not JSON", "use another checkpoint")) << status.ToString();
  }
}

TEST(Seal, SurvivesNestingThatWouldExhaustTheMemory) {
  std::string deep;
  for (int i = 0; i < 200000; ++i) deep += "[";
  for (int i = 0; i < 200000; ++i) deep += "]";
  EXPECT_FALSE(DecodeManifest(Seal("{\"schema\":1,\"parts\":" + deep + "}"), "manifest.json").ok());
  EXPECT_FALSE(DecodeManifest(Seal(deep), "manifest.json").ok());
  EXPECT_FALSE(DecodePart(Seal("{\"shards\":" + deep), "part").ok());
}

TEST(Manifest, ComesBackAsItWasEncoded) {
  Manifest manifest;
  manifest.identity = {"job", Step(7), Generation(3), 4};
  manifest.moves_latest = false;
  manifest.parts.push_back({Rank(2), "part-00002.json", 120, 0xABCDEF, {Rank(0), Rank(2)}, 4096});
  manifest.tensor_sums = {{"a", DType::kBFloat16, {3, 4}, 7}, {"b\"", DType::kBool, {}, UINT64_MAX}};
  const auto decoded = DecodeManifest(Encode(manifest), "manifest.json");
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->identity, manifest.identity);
  EXPECT_FALSE(decoded->moves_latest);
  ASSERT_EQ(decoded->parts.size(), 1u);
  EXPECT_EQ(decoded->parts[0].digest, 0xABCDEFu);
  EXPECT_EQ(decoded->parts[0].holders, (std::vector<Rank>{Rank(0), Rank(2)}));
  EXPECT_EQ(decoded->tensor_sums, manifest.tensor_sums);

  Json body = Json::parse(Encode(manifest)).at("body");
  std::swap(body["tensors"][0], body["tensors"][1]);
  EXPECT_TRUE(Names(DecodeManifest(Seal(body.dump()), "m").status().message(), "/tensors/1", "the key before it"));
  body["tensor_sum"] = "sums of a later version";
  const auto later = DecodeManifest(Seal(body.dump()), "m");
  ASSERT_TRUE(later.ok()) << later.status().ToString();
  EXPECT_TRUE(later->tensor_sums.empty());
}

TEST(Part, RefusesEveryFieldThatLiesAndNamesIt) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Write(0, 12, 1).ok());
  const std::string good = Text(files, "root/step_0000000012.tmp-g1.job-a/part-00000.json");
  const Json body = Json::parse(good).at("body");
  struct Lie {
    std::string pointer;  // RFC 6901
    Json value;           // null: the field is removed
    std::string named;
  };
  const std::string shard = "/shards/0", tensor = "/shards/0/tensors/2";  // layer.bias, nothing, optimizer.master
  const std::vector<Lie> lies = {
      {"/schema", 2, "schema"},
      {"/kind", "other", "kind"},
      {"/checksum", "crc32", "checksum"},
      {"/block_bytes", 4096, "blocks"},
      {"/world_size", -1, "world_size"},
      {"/world_size", 1 << 30, "world_size"},
      {"/world_size", 0, "has"},
      {"/writer", 4, "writer"},
      {"/job", Json(), "job"},
      {"/job", std::string(1000, 'x'), "job"},
      {"/step", 1.5, "step"},
      {"/layouts", {-1}, "layouts"},
      {"/has_mirrored", 1, "has_mirrored"},
      {"/shards", 5, "shards"},
      {"/shards/0", 5, "/shards/0"},
      {shard + "/holders", {2, 0}, "holders"},
      {shard + "/holders", {0, 0}, "holders"},
      {shard + "/holders", {0, 4}, "holders"},
      {shard + "/file", "../secret", "file"},
      {shard + "/file", "a/b", "file"},
      {shard + "/file", "", "file"},
      {shard + "/file_bytes", 100, "size_bytes"},
      {tensor + "/key", std::string("a\nb"), "key"},
      {tensor + "/key", "", "key"},
      {tensor + "/aliases", "head", "aliases"},
      {tensor + "/aliases", {1}, "aliases"},
      {tensor + "/aliases", {std::string(2000, 'x')}, "aliases"},
      {tensor + "/dtype", "float31", "dtype"},
      {tensor + "/dtype", "float64", "bytes"},
      {tensor + "/global_shape", {32}, "outside"},
      {tensor + "/global_shape", {-64}, "global_shape"},
      {tensor + "/global_shape", Json::array({1, 1, 1, 1, 1, 1, 1, 1, 1}), "global_shape"},
      {tensor + "/local_shape", {1, 64}, "dimensions"},
      {tensor + "/global_offset", {INT64_MAX}, "outside"},
      {tensor + "/flattened_range", {0}, "range"},
      {tensor + "/flattened_range", {0, 65}, "range"},
      {tensor + "/flattened_range", {40, 30}, "range"},
      {tensor + "/flattened_range", {0, 31}, "bytes"},
      {tensor + "/offset", UINT64_MAX, "offset"},
      {tensor + "/size_bytes", UINT64_MAX, "size_bytes"},
      {tensor + "/size_bytes", 127, "bytes"},
      {tensor + "/blocks", "", "checksum"},
      {tensor + "/blocks", "zz", "checksum"},
      {tensor + "/blocks", "0000000000000000", "digest"},
      {tensor + "/digest", "0000000000000000", "digest"},
      {tensor + "/sub_blocks", "0000000000000000", "one checksum for each part"},
      {tensor + "/sub_blocks", "zz", "one checksum for each part"},
      {tensor + "/sum", "00ff", "sum"},
      {tensor + "/sum", 255, "sum"},
      {tensor + "/sum", "00000000000000fg", "sum"},
      {"/objects/0/rank", 4, "rank"},
      {"/objects/0/size_bytes", 1 << 20, "size_bytes"},
      {"/objects_file", "/etc/passwd", "file"},
      {"/objects_file_bytes", 1, "size_bytes"},
  };
  ASSERT_TRUE(DecodePart(good, "part-00000.json").ok());
  for (const Lie& lie : lies) {
    Json changed = body;
    const Json::json_pointer at(lie.pointer);
    if (lie.value.is_null())
      changed.at(at.parent_pointer()).erase(at.back());
    else
      changed[at] = lie.value;
    const Status status = DecodePart(Seal(changed.dump()), "part-00000.json").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << lie.pointer << " = " << lie.value.dump();
    EXPECT_TRUE(Names(status.message(), "part-00000.json")) << status.ToString();
    EXPECT_TRUE(Names(status.message(), lie.named)) << lie.pointer << ": " << status.ToString();
  }
}

// Every value somewhere in the tree, by path.
void Walk(Json& json, const std::function<void(Json&)>& visit) {
  visit(json);
  if (json.is_structured())
    for (auto& child : json) Walk(child, visit);
}

Json Hostile(const Json& value, Random& random) {
  switch (random.Below(9)) {
    case 0:
      return Json();
    case 1:
      return -1;
    case 2:
      return UINT64_MAX;
    case 3:
      return 1e300;
    case 4:
      return std::string(static_cast<size_t>(random.Below(40)), 'f');
    case 5:
      return Json::array();
    case 6:
      return Json::object();
    case 7:
      return value.is_number_unsigned() ? Json(value.get<uint64_t>() + 1 + random.Below(80)) : Json(true);
    default:
      return value.is_number_unsigned() ? Json(value.get<uint64_t>() ^ (1ull << random.Below(40))) : Json("../x");
  }
}

Json Mutated(Json body, Random& random) {
  for (uint64_t edits = 1 + random.Below(3); edits > 0; --edits) {
    std::vector<Json*> all;
    Walk(body, [&](Json& json) { all.push_back(&json); });
    Json* victim = all[random.Below(all.size())];
    if (victim->is_structured() && !victim->empty() && random.Chance(0.5)) {
      auto child = victim->begin();
      std::advance(child, static_cast<std::ptrdiff_t>(random.Below(victim->size())));
      if (victim->is_array() && random.Chance(0.5))
        victim->push_back(Json(*child));
      else
        victim->erase(child);
    } else {
      *victim = Hostile(*victim, random);
    }
  }
  return body;
}

TEST(Manifest, HostileContentUnderARightSealIsRefusedOrLoadsTheSameBytes) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Save(12, 1).ok());
  const std::string folder = world.Path(12) + "/";
  const Json manifest = Json::parse(Text(files, folder + "manifest.json")).at("body");
  const Json part = Json::parse(Text(files, folder + "part-00001.json")).at("body");
  Random random(99);
  int same = 0, refused = 0;
  for (int round = 0; round < 1000; ++round) {
    Json listed = manifest;
    if (random.Chance(0.7)) {
      // A changed part that the manifest lists with its right size and digest.
      const std::string text = Seal(Mutated(part, random).dump());
      Put(files, folder + "part-00001.json", text);
      listed["parts"][1]["file_bytes"] = text.size();
      listed["parts"][1]["digest"] = ToHex(ChecksumOf({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
    } else {
      Put(files, folder + "part-00001.json", Seal(part.dump()));
      listed = Mutated(listed, random);
    }
    Put(files, folder + "manifest.json", Seal(listed.dump()));
    const Status loaded = world.LoadAll(world.Path(12));
    if (loaded.ok()) {
      ++same;
      ASSERT_TRUE(world.IsAt(12)) << listed.dump() << Text(files, folder + "part-00001.json");
    } else {
      ++refused;
    }
    ASSERT_NE(loaded.code(), StatusCode::kInternal);
    (void)Verify(world.Path(12), files);
    (void)FindNewestComplete("root", files);
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(same, 10) << "changes to what no reader uses";
}

TEST(CheckComplete, HoldsALayoutOfAFewRanksToThoseThatRegisteredIt) {
  constexpr int kFirstStage = kWorldLayoutMax + 1, kSecondStage = kWorldLayoutMax + 2;
  const SaveIdentity identity{"job", Step(1), Generation(1), 4};
  const auto part = [&](int writer, int stage) {
    Part made;
    made.identity = identity;
    made.writer = Rank(writer);
    made.layouts = {0, stage};
    return made;
  };
  const auto shard = [](int layout, std::vector<Rank> holders) {
    StoredShard made;
    made.layout = layout;
    made.holders = std::move(holders);
    made.file = "layout" + std::to_string(layout);
    return made;
  };
  const auto check = [&](int first, int second, bool second_is_written) {
    std::vector<Part> parts = {part(0, first), part(1, second), part(2, first), part(3, second)};
    parts[0].shards = {shard(0, {Rank(0), Rank(1), Rank(2), Rank(3)}), shard(first, {Rank(0), Rank(2)})};
    if (second_is_written) parts[1].shards = {shard(second, {Rank(1), Rank(3)})};
    return CheckComplete(identity, {&parts[0], &parts[1], &parts[2], &parts[3]});
  };
  EXPECT_TRUE(check(kFirstStage, kSecondStage, true).ok());
  const Status missing = check(kFirstStage, kSecondStage, false);
  EXPECT_NE(
      missing.message().find("layout " + std::to_string(kSecondStage) + ": nobody wrote the shards that ranks 1, 3"),
      std::string::npos)
      << missing.ToString();
  // Up to the bound a layout is of all ranks.
  EXPECT_NE(check(1, kSecondStage, true).message().find("layout 1: nobody wrote the shards that ranks 1, 3"),
            std::string::npos);
}

}  // namespace
}  // namespace kintsugi::checkpoint
