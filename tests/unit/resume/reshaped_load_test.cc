// A checkpoint of one world, loaded into others: every element, objects, names, refusals, damage.
#include <filesystem>
#include <fstream>

#include "replica/formats/convert.h"
#include "replica/save/find.h"
#include "runtime/base/random.h"
#include "tests/unit/resume/worlds.h"

namespace kintsugi::resume {
namespace {

const std::vector<Global> kModel = {{"w.column", {12, 24}, 1},
                                    {"w.row", {24, 12}, 0},
                                    {"w.cube", {4, 6, 8}, 1},
                                    {"norm", {13}, -1},
                                    {"scalar", {}, -1}};

void ExpectWhole(std::vector<LoadedRank>& ranks) {
  for (LoadedRank& rank : ranks) {
    ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
    rank.world->ExpectSet();
  }
}

Status FirstError(const std::vector<LoadedRank>& ranks) {
  for (const LoadedRank& rank : ranks)
    if (!rank.status.ok()) return rank.status;
  return Status::Ok();
}

TEST(ReshapedLoad, BringsEveryElementFromAnyCutToAnyOther) {
  const Cut cuts[] = {{4, 2, 1}, {4, 2, 2}, {2, 2, 1}, {6, 2, 3}, {8, 2, 2}, {4, 1, 4}, {3, 1, 1}, {1, 1, 1}};
  for (const Cut& saved : {Cut{4, 2, 2}, Cut{4, 1, 2}, Cut{6, 2, 3}, Cut{1, 1, 1}}) {
    const TemporaryFolder root;
    const std::string path = Save(root.path(), saved, kModel, 1);
    for (const Cut& cut : cuts) {
      SCOPED_TRACE("from " + std::to_string(saved.ranks) + "/" + std::to_string(saved.tp) + "/" +
                   std::to_string(saved.shards) + " to " + std::to_string(cut.ranks) + "/" + std::to_string(cut.tp) +
                   "/" + std::to_string(cut.shards));
      auto ranks = LoadAll(path, cut, kModel);
      ExpectWhole(ranks);
      for (LoadedRank& rank : ranks) EXPECT_EQ(rank.world->counter(), (std::vector<uint8_t>{0, 7}));
    }
  }
}

// Larger than a block and than the buffers, so that windows begin and end within rows.
TEST(ReshapedLoad, ReadsOnlyTheBlocksItNeedsThroughSmallBuffers) {
  const std::vector<Global> model = {{"big", {1000, 1500}, 1}, {"tail", {300001}, -1}};
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {2, 2, 1}, model);
  ReshapeOptions options;
  options.buffer_bytes = 2 << 20;
  auto ranks = LoadAll(path, {4, 1, 4}, model, options);
  ExpectWhole(ranks);
  const uint64_t stored = (1000 * 1500 + 300001) * sizeof(float);
  for (const LoadedRank& rank : ranks) {
    // A quarter of each tensor, and at most a sub-block more at each end of each stretch: two stored pieces of one, one
    // of the other.
    EXPECT_LT(rank.loaded.bytes, stored / 4 + 6 * checkpoint::kSubBlockBytes) << rank.loaded.note;
    const std::string beside = "beside_the_state=\"";
    const size_t at = rank.loaded.note.find(beside);
    ASSERT_NE(at, std::string::npos) << rank.loaded.note;
    EXPECT_LE(std::stod(rank.loaded.note.substr(at + beside.size())), 2.0) << rank.loaded.note;
  }
}

// Rows that are long enough go straight from the file into their places, what lies between goes nowhere; short ones
// pass through the buffer. Both within one window, in one thread and in several.
TEST(ReshapedLoad, ReadsLongRowsStraightIntoTheirPlaces) {
  const std::vector<Global> model = {
      {"wide", {61, 6 * 4500}, 1}, {"narrow", {500, 6 * 40}, 1}, {"rows", {6 * 700, 77}, 0}, {"flat", {600007}, -1}};
  for (const Cut& saved : {Cut{8, 2, 4}, Cut{4, 2, 1}, Cut{6, 6, 1}})
    for (const Cut& cut : {Cut{6, 2, 3}, Cut{3, 3, 1}, Cut{1, 1, 1}})
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(std::to_string(saved.tp) + "/" + std::to_string(saved.shards) + " to " + std::to_string(cut.tp) +
                     "/" + std::to_string(cut.shards) + " threads " + std::to_string(threads));
        const TemporaryFolder root;
        ReshapeOptions options;
        options.buffer_bytes = 4 << 20;
        options.threads = threads;
        auto ranks = LoadAll(Save(root.path(), saved, model), cut, model, options);
        ExpectWhole(ranks);
        for (const LoadedRank& rank : ranks)
          EXPECT_EQ(rank.loaded.note.find("straight=\"0.0 MiB\""), std::string::npos) << rank.loaded.note;
      }
}

TEST(ReshapedLoad, RandomCutsBringEveryElement) {
  Random random(7);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random.Below(bound)); };
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<Global> model;
    const int64_t tensors = 1 + below(4);
    for (int64_t i = 0; i < tensors; ++i) {
      Global global{"t" + std::to_string(i), {}, -1};
      const int64_t axes = below(4);
      for (int64_t axis = 0; axis < axes; ++axis) global.shape.push_back(1 + below(9));
      if (axes > 0 && random.Chance(0.6)) {
        global.tp_axis = static_cast<int>(below(static_cast<uint64_t>(axes)));
        global.shape[static_cast<size_t>(global.tp_axis)] *= 6;
      }
      model.push_back(global);
    }
    const auto cut = [&] {
      const int tp = static_cast<int>(1 + below(3)), shards = static_cast<int>(1 + below(3));
      return Cut{tp * shards * static_cast<int>(1 + below(2)), tp, shards};
    };
    const TemporaryFolder root;
    const std::string path = Save(root.path(), cut(), model, static_cast<int>(below(2)));
    auto ranks = LoadAll(path, cut(), model);
    ExpectWhole(ranks);
    if (HasFailure()) return;
  }
}

TEST(ReshapedLoad, AProgramRenamesAndCutsOnTheWay) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {4, 2, 2}, {{"a", {4, 6}, 1}, {"b", {4, 6}, 1}, {"unused", {3}, -1}});
  ReshapeOptions options;
  options.statements = {{"a, b -> ab, axis=0", "unused -> _"}};
  auto ranks = LoadAll(path, {3, 1, 3}, {{"ab", {8, 6}, -1}}, options);
  for (LoadedRank& rank : ranks) {
    ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
    rank.world->ForEach([](const std::string&, int64_t element, float& value) {
      EXPECT_EQ(value, element < 24 ? ValueOf("a", element) : ValueOf("b", element - 24));
    });
  }
}

// Each rank alone does not know over how many shards the target is cut; all together do.
TEST(ReshapedLoad, AFusedWeightIsReorderedForTheShardsOfTheTarget) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {2, 2, 1}, {{"ffn", {1, 8}, 1}});
  ReshapeOptions options;
  options.statements = {{"ffn -> ffn, fused_ffn"}};
  auto ranks = LoadAll(path, {4, 4, 1}, {{"ffn", {1, 8}, 1}}, options);
  const int64_t stored_at[] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (LoadedRank& rank : ranks) {
    ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
    rank.world->ForEach([&](const std::string& key, int64_t element, float& value) {
      EXPECT_EQ(value, ValueOf(key, stored_at[element])) << element;
    });
  }
}

TEST(ReshapedLoad, KeysOnOneSideAreJudgedByTheStrictMode) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {2, 1, 1}, {{"a", {4}, -1}, {"stored", {4}, -1}});
  const auto load = [&](layout::StrictHandling strict) {
    ReshapeOptions options;
    options.strict = strict;
    return LoadAll(path, {3, 1, 1}, {{"a", {4}, -1}, {"wanted", {4}, -1}}, options);
  };
  const Status unexpected = FirstError(load(layout::StrictHandling::kRaiseAll));
  EXPECT_EQ(unexpected.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(unexpected.message().find("'wanted' is registered, but is not in the checkpoint"), std::string::npos)
      << unexpected.ToString();
  auto ranks = load(layout::StrictHandling::kIgnoreAll);
  for (LoadedRank& rank : ranks) {
    ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
    EXPECT_NE(rank.loaded.note.find("not_stored=\"'wanted'\" not_read=\"'stored'\""), std::string::npos)
        << rank.loaded.note;
    rank.world->ForEach([](const std::string& key, int64_t element, float& value) {
      EXPECT_EQ(value, key == "a" ? ValueOf("a", element) : -1.0f);
    });
  }
  const Status missing = FirstError(LoadAll(path, {3, 1, 1}, {{"a", {4}, -1}}));
  EXPECT_NE(missing.message().find("'stored': in the checkpoint, but registered by no rank"), std::string::npos)
      << missing.ToString();
}

TEST(ReshapedLoad, WhatHasNoElementIsNotMissed) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {2, 1, 1}, {{"a", {4}, -1}});
  for (LoadedRank& rank : LoadAll(path, {3, 1, 1}, {{"a", {4}, -1}, {"nothing", {0, 3}, -1}})) {
    ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
    rank.world->ForEach(
        [](const std::string& key, int64_t element, float& value) { EXPECT_EQ(value, ValueOf(key, element)); });
  }
  const std::string both = Save(root.path() + "/both", {2, 1, 1}, {{"a", {4}, -1}, {"nothing", {0, 3}, -1}});
  EXPECT_TRUE(FirstError(LoadAll(both, {3, 1, 1}, {{"a", {4}, -1}, {"nothing", {0, 3}, -1}})).ok());
  const Status other = FirstError(LoadAll(both, {3, 1, 1}, {{"a", {4}, -1}, {"nothing", {2, 3}, -1}}));
  EXPECT_NE(other.message().find("'nothing'"), std::string::npos) << other.ToString();
}

TEST(ReshapedLoad, ATiedTensorIsFoundUnderEitherName) {
  const Global emb{"emb", {8, 6}, 0}, head{"head", {8, 6}, 0}, other{"other", {5}, -1};
  const Cut from{4, 2, 1}, to{3, 1, 3};
  Aliases aliases;
  ASSERT_TRUE(aliases.Add("head", "emb", RankWorld({1, 1, 1}, 0, {emb, other}).registry()).ok());
  ReshapeOptions tied;
  tied.aliases = &aliases;
  const auto expect_as = [](std::vector<LoadedRank> ranks, const std::map<std::string, std::string>& stored) {
    for (LoadedRank& rank : ranks) {
      ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
      rank.world->ForEach([&](const std::string& key, int64_t element, float& value) {
        EXPECT_EQ(value, ValueOf(stored.contains(key) ? stored.at(key) : key, element)) << key;
      });
    }
  };
  // Saved as tied: by trainers that tie, that know of one name only, and that have untied them since.
  const TemporaryFolder both;
  const std::string path = Save(both.path(), from, {emb, other}, 0, {{"head", "emb"}});
  expect_as(LoadAll(path, to, {emb, other}, tied), {});
  expect_as(LoadAll(path, to, {emb, other}), {});
  expect_as(LoadAll(path, to, {emb, head, other}), {{"head", "emb"}});
  // Saved under the other name alone.
  const TemporaryFolder only;
  const std::string under_head = Save(only.path(), from, {head, other});
  expect_as(LoadAll(under_head, to, {emb, other}, tied), {{"emb", "head"}});
  const Status unknown = FirstError(LoadAll(under_head, to, {emb, other}));
  EXPECT_NE(unknown.message().find("'emb' is registered, but is not in the checkpoint"), std::string::npos)
      << unknown.ToString();
  // Saved as two tensors that differ: tying them would lose one.
  const TemporaryFolder apart;
  const std::string untied = Save(apart.path(), from, {emb, head, other});
  const Status differ = FirstError(LoadAll(untied, to, {emb, other}, tied));
  EXPECT_EQ(differ.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(differ.message().find("'head' is registered as another name of 'emb'"), std::string::npos)
      << differ.ToString();
  tied.strict = layout::StrictHandling::kRaiseUnexpected;
  expect_as(LoadAll(untied, to, {emb, other}, tied), {});
}

TEST(ReshapedLoad, AProgramReadsATiedTensorUnderOneOfItsNames) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {2, 2, 1}, {{"emb", {8, 6}, 0}}, 0, {{"head", "emb"}});
  ReshapeOptions options;
  options.statements = {"head -> out"};
  auto ranks = LoadAll(path, {2, 1, 2}, {{"out", {8, 6}, 0}}, options);
  for (LoadedRank& rank : ranks) {
    ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
    rank.world->ForEach(
        [](const std::string&, int64_t element, float& value) { EXPECT_EQ(value, ValueOf("emb", element)); });
  }
}

TEST(ReshapedLoad, OneRanksMisfitIsEveryRanksErrorAndTouchesNothing) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {2, 2, 1}, {{"a", {4, 4}, 1}});
  auto ranks = LoadAll(path, {4, 2, 1}, {{"a", {4, 6}, 1}});
  for (LoadedRank& rank : ranks) {
    EXPECT_EQ(rank.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(rank.status.message().find("'a'"), std::string::npos) << rank.status.ToString();
    EXPECT_NE(rank.status.message().find("[4, 6]"), std::string::npos) << rank.status.ToString();
    rank.world->ForEach([](const std::string&, int64_t, float& value) { EXPECT_EQ(value, -1.0f); });
  }
}

// Takes the checksums of sub-blocks out, as an older version never wrote them.
void MakeOlder(const std::string& path) {
  auto info = checkpoint::ReadManifest(path);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(checkpoint::Join(path, name), std::ios::binary | std::ios::trunc) << text;
  };
  for (checkpoint::ListedPart& listed : info->manifest.parts) {
    auto part = checkpoint::ReadPart(*info, listed);
    ASSERT_TRUE(part.ok()) << part.status().ToString();
    for (checkpoint::StoredShard& shard : part->shards)
      for (checkpoint::StoredTensor& tensor : shard.tensors) {
        EXPECT_FALSE(tensor.extent.sub_blocks.empty()) << "nothing to take out";
        tensor.extent.sub_blocks.clear();
      }
    const std::string text = checkpoint::Encode(*part);
    write(listed.file, text);
    listed = checkpoint::List(*part, text);
  }
  write(std::string(checkpoint::kManifestName), checkpoint::Encode(info->manifest));
}

TEST(ReshapedLoad, ADamagedBlockIsNamed) {
  for (const bool older : {false, true}) {
    SCOPED_TRACE(older ? "without checksums of sub-blocks" : "with checksums of sub-blocks");
    const TemporaryFolder root;
    const std::string path = Save(root.path(), {1, 1, 1}, {{"a", {600000}, -1}});
    if (older) MakeOlder(path);
    auto whole = LoadAll(path, {3, 1, 3}, {{"a", {600000}, -1}});
    for (LoadedRank& rank : whole) {
      ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
      rank.world->ExpectSet();
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().filename().string().rfind("layout", 0) != 0) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(1500000);
      file.put('x');
    }
    const auto ranks = LoadAll(path, {3, 1, 3}, {{"a", {600000}, -1}});
    // Of three ranks only those that need the block see it: two, or the one that needs that part of it.
    EXPECT_TRUE(ranks[0].status.ok()) << ranks[0].status.ToString();
    EXPECT_EQ(ranks[1].status.code(), StatusCode::kDataLoss);
    EXPECT_NE(ranks[1].status.message().find("tensor 'a' is damaged in block 1 of 3"), std::string::npos)
        << ranks[1].status.ToString();
    EXPECT_EQ(ranks[2].status.ok(), !older) << ranks[2].status.ToString();
  }
}

// Every format that is written, from any cut, into any other: tensors and objects, checked against the sidecar.
TEST(ReshapedLoad, BringsEveryElementFromEveryFormat) {
  const std::vector<Global> globals = {
      {"a", {12, 70000}, 0}, {"wide", {6, 30000}, 1}, {"b", {24, 6}, 1}, {"c", {5}, -1}, {"d", {3, 4, 2}, -1}};
  for (const std::string format : {"safetensors", "torch", "dcp", "megatron"})
    for (const Cut& to : {Cut{1, 1, 1}, Cut{6, 2, 3}}) {
      const TemporaryFolder root;
      const std::string native = Save(root.path(), {4, 2, 2}, globals);
      const std::string path = root.path() + "/other" + (format == "torch" ? ".pt" : "");
      formats::ConvertOptions options;
      options.to_format = format;
      options.lay.shards = 3;
      const auto converted = formats::Convert(native, path, options);
      ASSERT_TRUE(converted.ok()) << converted.status().ToString();
      ReshapeOptions small;
      small.buffer_bytes = 3 << 20;
      const auto ranks = LoadAll(path, to, globals, small);
      for (const LoadedRank& rank : ranks) {
        ASSERT_TRUE(rank.status.ok()) << format << ": " << rank.status.ToString();
        rank.world->ExpectSet();
        EXPECT_EQ(rank.world->counter(), (std::vector<uint8_t>{0, 7})) << format;
        EXPECT_NE(rank.loaded.note.find("format=" + format), std::string::npos) << rank.loaded.note;
      }
    }
}

TEST(ReshapedLoad, ADamagedBlockOfAForeignFileIsNamedByTheSidecar) {
  const TemporaryFolder root;
  const std::string native = Save(root.path(), {1, 1, 1}, {{"a", {600000}, -1}});
  const std::string path = root.path() + "/other.safetensors";
  formats::ConvertOptions options;
  options.to_format = "safetensors";
  ASSERT_TRUE(formats::Convert(native, path, options).ok());
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1500000);
    file.put('x');
  }
  const auto ranks = LoadAll(path, {3, 1, 3}, {{"a", {600000}, -1}});
  EXPECT_TRUE(ranks[0].status.ok()) << ranks[0].status.ToString();
  EXPECT_EQ(ranks[1].status.code(), StatusCode::kDataLoss);
  EXPECT_NE(ranks[1].status.message().find("is damaged in block 1 of 3"), std::string::npos)
      << ranks[1].status.ToString();
}

TEST(ReshapedLoad, AnObjectThatDoesNotSayHowItGoesOnIsNamed) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {2, 1, 1}, {{"a", {4}, -1}});
  const Status unsaid = FirstError(LoadAll(path, {3, 1, 1}, {{"a", {4}, -1}}, {}, TakeOver::kUnsaid));
  EXPECT_EQ(unsaid.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(unsaid.message().find("object 'counter' does not say how it goes on"), std::string::npos)
      << unsaid.ToString();
}

}  // namespace
}  // namespace kintsugi::resume
