// What ranks hold after a load is held against the sums in the checkpoint: silent where all is right, whatever the
// cuts, and an error on every rank for anything that lies at a wrong place.
#include "replica/resume/held_sums.h"

#include <cstring>
#include <fstream>

#include "replica/formats/convert.h"
#include "replica/save/find.h"
#include "replica/save/logical_sum.h"
#include "runtime/base/random.h"
#include "tests/unit/resume/worlds.h"

namespace kintsugi::resume {
namespace {

const std::vector<Global> kModel = {{"w.column", {12, 24}, 1},
                                    {"w.row", {24, 12}, 0},
                                    {"w.cube", {4, 6, 8}, 1},
                                    {"norm", {13}, -1},
                                    {"scalar", {}, -1}};

struct Outcome {
  std::vector<Result<SumsCompared>> ranks;
  // The error that every rank has; empty where none has one.
  std::string Error() const {
    std::string text = ranks.front().ok() ? "" : ranks.front().status().message();
    for (const auto& rank : ranks) {
      EXPECT_EQ(rank.ok(), ranks.front().ok());
      if (rank.ok()) continue;
      EXPECT_EQ(rank.status().code(), StatusCode::kDataLoss);
      EXPECT_EQ(rank.status().message(), text);
    }
    return text;
  }
};

Outcome CompareAll(std::vector<LoadedRank>& ranks) {
  Outcome outcome;
  outcome.ranks.resize(ranks.size(), Status(StatusCode::kInternal, "did not run"));
  LocalStore store;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      Agreement agreement(&store, Rank(static_cast<int32_t>(rank)), static_cast<int>(ranks.size()), TimePoint::Max());
      outcome.ranks[rank] = CompareHeldSums(ranks[rank].world->registry(), ranks[rank].loaded,
                                            static_cast<int>(ranks.size()), {}, &agreement);
    });
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

void ExpectAllEqual(std::vector<LoadedRank>& ranks, size_t tensors) {
  for (const LoadedRank& rank : ranks) ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
  const Outcome outcome = CompareAll(ranks);
  ASSERT_EQ(outcome.Error(), "");
  for (const auto& rank : outcome.ranks) {
    EXPECT_EQ(rank->equal, tensors);
    EXPECT_TRUE(rank->not_compared.empty()) << rank->not_compared.front();
    EXPECT_EQ(rank->Note(), "event=resume_sums compared=" + std::to_string(tensors));
  }
}

std::span<float> MemoryOf(LoadedRank& rank, const std::string& key) {
  const ShardedTensor& tensor = rank.world->registry().tensors().at(key);
  return {static_cast<float*>(tensor.memory.data), static_cast<size_t>(tensor.ElementCount())};
}

TEST(HeldSums, AreThoseOfTheCheckpointFromAnyCutToAnyOther) {
  for (const Cut& saved : {Cut{4, 2, 2}, Cut{4, 1, 2}, Cut{6, 2, 3}, Cut{1, 1, 1}}) {
    const TemporaryFolder root;
    const std::string path = Save(root.path(), saved, kModel, 1);
    for (const Cut& cut : {Cut{4, 2, 1}, Cut{4, 2, 2}, Cut{6, 2, 3}, Cut{8, 2, 2}, Cut{4, 1, 4}, Cut{1, 1, 1}}) {
      SCOPED_TRACE(std::to_string(saved.ranks) + "/" + std::to_string(saved.tp) + "/" + std::to_string(saved.shards) +
                   " to " + std::to_string(cut.ranks) + "/" + std::to_string(cut.tp) + "/" +
                   std::to_string(cut.shards));
      auto ranks = LoadAll(path, cut, kModel);
      ExpectAllEqual(ranks, kModel.size());
    }
  }
}

TEST(HeldSums, RandomCuts) {
  Random random(17);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random.Below(bound)); };
  for (int round = 0; round < 30; ++round) {
    std::vector<Global> model;
    for (int64_t i = 0, tensors = 1 + below(4); i < tensors; ++i) {
      Global global{"t" + std::to_string(i), {}, -1};
      for (int64_t axis = 0, axes = below(4); axis < axes; ++axis) global.shape.push_back(1 + below(9));
      if (!global.shape.empty() && random.Chance(0.6)) {
        global.tp_axis = static_cast<int>(below(global.shape.size()));
        global.shape[static_cast<size_t>(global.tp_axis)] *= 6;
      }
      model.push_back(global);
    }
    const auto cut = [&] {
      const int tp = static_cast<int>(1 + below(3)), shards = static_cast<int>(1 + below(3));
      return Cut{tp * shards * static_cast<int>(1 + below(2)), tp, shards};
    };
    const TemporaryFolder root;
    auto ranks = LoadAll(Save(root.path(), cut(), model, static_cast<int>(below(2))), cut(), model);
    ExpectAllEqual(ranks, model.size());
    if (HasFailure()) return;
  }
}

TEST(HeldSums, WhatLiesAtAWrongPlaceIsNamedOnEveryRank) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {4, 2, 2}, kModel);
  const Cut cut{6, 2, 3};  // no copies but those of what tensor-parallel ranks share
  struct Mistake {
    const char* what;
    std::function<void(std::vector<LoadedRank>&)> make;
    const char *key, *words;
  };
  const Mistake mistakes[] = {
      {"two elements", [](auto& ranks) { std::swap(MemoryOf(ranks[3], "w.row")[1], MemoryOf(ranks[3], "w.row")[2]); },
       "'w.row'", "has the sum"},
      {"a bit", [](auto& ranks) { reinterpret_cast<uint8_t*>(MemoryOf(ranks[0], "w.cube").data())[5] ^= 8; },
       "'w.cube'", "has the sum"},
      {"a shard by one element",
       [](auto& ranks) {
         const auto memory = MemoryOf(ranks[5], "w.column");
         std::rotate(memory.begin(), memory.begin() + 1, memory.end());
       },
       "'w.column'", "has the sum"},
      {"the shards of two ranks",
       [](auto& ranks) {
         const auto a = MemoryOf(ranks[0], "w.column"), b = MemoryOf(ranks[1], "w.column");
         std::swap_ranges(a.begin(), a.end(), b.begin());
       },
       "'w.column'", "has the sum"},
      {"one of two copies", [](auto& ranks) { MemoryOf(ranks[2], "norm")[0] += 1; }, "'norm'", "copies of a shard"},
      {"both copies, alike",
       [](auto& ranks) {
         MemoryOf(ranks[2], "norm")[0] += 1;
         MemoryOf(ranks[3], "norm")[0] += 1;
       },
       "'norm'", "has the sum"},
  };
  for (const Mistake& mistake : mistakes) {
    auto ranks = LoadAll(path, cut, kModel);
    ExpectAllEqual(ranks, kModel.size());
    for (LoadedRank& rank : ranks) rank.loaded.sums.clear();  // what comes later is seen in memory alone
    mistake.make(ranks);
    const std::string error = CompareAll(ranks).Error();
    for (const std::string& word :
         {path, std::string(mistake.key), std::string(mistake.words), std::string("another checkpoint")})
      EXPECT_NE(error.find(word), std::string::npos) << mistake.what << ": '" << error << "' lacks " << word;
  }
}

uint64_t SumInMemory(const ShardedTensor& tensor) {
  std::shared_ptr<uint8_t> none;
  return *checkpoint::LogicalSumOf(tensor, nullptr, &none);
}

// Long rows are read where they belong, shorter ones copied there; both are summed up as they arrive. Rows of less than
// a KiB are left to a pass over memory.
TEST(HeldSums, AreTakenAsBytesArriveAndAreThoseOfTheMemory) {
  const std::vector<Global> model = {{"w.long", {4, 24576}, 1}, {"w.short", {16, 3072}, 1}, {"w.whole", {12000}, -1}};
  const std::vector<Global> tiny = {{"w.tiny", {96, 96}, 1}};
  const TemporaryFolder root;
  std::vector<Global> all = model;
  all.insert(all.end(), tiny.begin(), tiny.end());
  const std::string path = Save(root.path(), {8, 4, 2}, all);
  for (const Cut& cut : {Cut{1, 1, 1}, Cut{4, 2, 2}, Cut{6, 2, 3}, Cut{6, 3, 1}, Cut{8, 4, 2}}) {
    SCOPED_TRACE(std::to_string(cut.ranks) + "/" + std::to_string(cut.tp) + "/" + std::to_string(cut.shards));
    auto ranks = LoadAll(path, cut, all);
    for (LoadedRank& rank : ranks) {
      ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
      for (const Global& global : model) EXPECT_TRUE(rank.loaded.sums.contains(global.key)) << global.key;
      EXPECT_EQ(rank.loaded.sums.contains("w.tiny"), cut.tp == 4) << "cut as it is stored";
      for (const auto& [key, sum] : rank.loaded.sums)
        EXPECT_EQ(sum, SumInMemory(rank.world->registry().tensors().at(key))) << key;
    }
    ExpectAllEqual(ranks, all.size());
  }
}

// A function of the trainer's own runs while tensors are loaded already: what it changes is seen.
TEST(HeldSums, AreTakenFromMemoryWhereTheTrainersOwnFunctionRuns) {
  const TemporaryFolder root;
  const std::vector<Global> model = {{"w", {4, 24576}, 1}};
  const std::string path = Save(root.path(), {4, 2, 2}, model);
  auto ranks = LoadAll(path, {2, 2, 1}, model, {}, TakeOver::kOwn);
  for (const LoadedRank& rank : ranks) EXPECT_TRUE(rank.loaded.sums.empty());
  ExpectAllEqual(ranks, model.size());
  MemoryOf(ranks[1], "w")[7] += 1;
  EXPECT_NE(CompareAll(ranks).Error().find("has the sum"), std::string::npos);
}

// The straight path too.
TEST(HeldSums, AreTakenAsBytesArriveWhereLayoutsAreEqual) {
  const std::vector<Global> model = {{"w.column", {12, 30000}, 1}, {"norm", {13}, -1}};
  const TemporaryFolder root;
  const Cut cut{4, 2, 2};
  const std::string path = Save(root.path(), cut, model);
  for (int rank = 0; rank < cut.ranks; ++rank) {
    RankWorld world(cut, rank, model);
    checkpoint::LoadRequest request;
    request.path = path;
    request.self = Rank(rank);
    const auto loaded = checkpoint::Load(world.registry(), request);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    ASSERT_EQ(loaded->sums.size(), model.size());
    for (const auto& [key, sum] : loaded->sums) EXPECT_EQ(sum, SumInMemory(world.registry().tensors().at(key))) << key;
  }
}

// Two parts whose descriptions say each other's place: every block agrees with its checksum, nothing overlaps, and
// nothing is missing.
TEST(HeldSums, AWrongDescriptionIsSeenThoughBytesAreSummedUpAsTheyArrive) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {4, 2, 2}, {{"w", {12, 24576}, 0}});
  auto info = checkpoint::ReadManifest(path);
  ASSERT_TRUE(info.ok());
  std::vector<checkpoint::Part> parts;
  for (const auto& listed : info->manifest.parts) parts.push_back(*checkpoint::ReadPart(*info, listed));
  const auto place_of = [&](size_t part) -> Shape& {
    return parts[part].shards.at(0).tensors.at(0).tensor.global_offset;
  };
  size_t other = 1;
  while (place_of(other) == place_of(0)) ++other;
  ASSERT_EQ(parts[0].shards[0].tensors[0].tensor.flattened_range,
            parts[other].shards[0].tensors[0].tensor.flattened_range);
  std::swap(place_of(0), place_of(other));
  for (size_t i : {size_t{0}, other}) {
    const std::string text = checkpoint::Encode(parts[i]);
    std::ofstream(path + "/" + info->manifest.parts[i].file, std::ios::trunc) << text;
    info->manifest.parts[i] = checkpoint::List(parts[i], text);
  }
  std::ofstream(path + "/manifest.json", std::ios::trunc) << checkpoint::Encode(info->manifest);
  for (const Cut& cut : {Cut{3, 1, 3}, Cut{2, 2, 1}}) {
    auto ranks = LoadAll(path, cut, {{"w", {12, 24576}, 0}});
    for (const LoadedRank& rank : ranks) {
      ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
      ASSERT_TRUE(rank.loaded.sums.contains("w"));
    }
    const std::string error = CompareAll(ranks).Error();
    EXPECT_NE(error.find("'w'"), std::string::npos) << error;
    EXPECT_NE(error.find("has the sum"), std::string::npos) << error;
  }
}

TEST(HeldSums, OfAProgramWhatHasButAnotherNameIsComparedTheRestIsNamed) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {4, 2, 2}, {{"a", {4, 6}, 1}, {"b", {4, 6}, 1}, {"old", {3, 4}, 1}});
  ReshapeOptions options;
  options.statements = {{"a, b -> ab, axis=0", "old -> new"}};
  auto ranks = LoadAll(path, {3, 1, 3}, {{"ab", {8, 6}, -1}, {"new", {3, 4}, -1}}, options);
  const Outcome outcome = CompareAll(ranks);
  ASSERT_EQ(outcome.Error(), "");
  EXPECT_EQ(outcome.ranks[0]->equal, 1u);
  EXPECT_EQ(outcome.ranks[0]->not_compared, std::vector<std::string>{"ab"});
  EXPECT_NE(outcome.ranks[0]->Note().find("compared=1 not_compared=\"'ab'\""), std::string::npos)
      << outcome.ranks[0]->Note();
  for (LoadedRank& rank : ranks) rank.loaded.sums.clear();
  MemoryOf(ranks[1], "new")[0] += 1;
  const std::string error = CompareAll(ranks).Error();
  EXPECT_NE(error.find("'old'"), std::string::npos) << "by its name in the checkpoint: " << error;
}

TEST(HeldSums, GoAlongIntoOtherFormats) {
  const TemporaryFolder root;
  const std::string native = Save(root.path(), {4, 2, 2}, kModel);
  for (const char* format : {"safetensors", "torch", "dcp", "megatron", "paddle"}) {
    SCOPED_TRACE(format);
    formats::ConvertOptions convert;
    convert.to_format = format;
    convert.lay.shards = 3;
    const std::string path = root.path() + "/" + format + (format == std::string("torch") ? ".pt" : "");
    const auto done = formats::Convert(native, path, convert);
    ASSERT_TRUE(done.ok()) << done.status().ToString();
    auto ranks = LoadAll(path, {6, 2, 3}, kModel);
    ExpectAllEqual(ranks, kModel.size());
    for (LoadedRank& rank : ranks) rank.loaded.sums.clear();
    MemoryOf(ranks[4], "w.cube")[2] = 77;
    EXPECT_NE(CompareAll(ranks).Error().find("'w.cube'"), std::string::npos);
  }
}

TEST(HeldSums, WithoutSumsNothingIsComparedAndThatIsSaid) {
  const TemporaryFolder root;
  auto ranks = LoadAll(Save(root.path(), {4, 2, 2}, kModel), {3, 1, 3}, kModel);
  for (LoadedRank& rank : ranks) rank.loaded.info.manifest.tensor_sums.clear();
  const Outcome outcome = CompareAll(ranks);
  ASSERT_EQ(outcome.Error(), "");
  EXPECT_NE(outcome.ranks[0]->Note().find("no sums of its tensors"), std::string::npos) << outcome.ranks[0]->Note();
}

// Elements that are held twice in places that are no copies, and others not at all: nothing can be said, nothing is
// claimed.
TEST(HeldSums, CutsThatOverlapAreNotCompared) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {1, 1, 1}, {{"w", {12}, -1}});
  const auto info = checkpoint::ReadManifest(path);
  ASSERT_TRUE(info.ok());
  for (const std::pair<int64_t, int64_t>& second : {std::pair<int64_t, int64_t>(4, 12), {3, 9}, {6, 8}}) {
    std::vector<float> memory[2] = {std::vector<float>(6), {}};
    memory[1].resize(static_cast<size_t>(second.second - second.first));
    StateRegistry registries[2];
    LocalStore store;
    std::vector<Result<SumsCompared>> found(2, Status(StatusCode::kInternal, "did not run"));
    std::vector<std::thread> threads;
    for (int rank : {0, 1}) {
      ShardedTensor tensor;
      tensor.key = "w";
      tensor.global_shape = {12};
      tensor.global_offset = {rank == 0 ? 0 : second.first};
      tensor.local_shape = {static_cast<int64_t>(memory[rank].size())};
      tensor.memory.data = memory[rank].data();
      tensor.memory.size_bytes = memory[rank].size() * sizeof(float);
      ASSERT_TRUE(registries[rank].AddTensor(tensor).ok());
    }
    for (int rank : {0, 1})
      threads.emplace_back([&, rank] {
        checkpoint::Loaded loaded;
        loaded.info = *info;
        loaded.held["w"] = "w";
        Agreement agreement(&store, Rank(rank), 2, TimePoint::Max());
        found[static_cast<size_t>(rank)] = CompareHeldSums(registries[rank], loaded, 2, {}, &agreement);
      });
    for (std::thread& thread : threads) thread.join();
    for (const auto& rank : found) {
      ASSERT_TRUE(rank.ok()) << rank.status().ToString();
      EXPECT_EQ(rank->equal, 0u);
      EXPECT_EQ(rank->not_compared, std::vector<std::string>{"w"});
    }
  }
}

}  // namespace
}  // namespace kintsugi::resume
