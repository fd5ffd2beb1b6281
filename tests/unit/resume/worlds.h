// Worlds of ranks for the tests of resuming elsewhere: what each rank holds is said by cuts, every element's value
// follows from its key and its place in the global tensor, so a load can be checked against nothing but these.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "callbacks/state/values.h"
#include "replica/layout/flat_range.h"
#include "replica/resume/reshaped_load.h"
#include "replica/save/names.h"
#include "replica/save/publish.h"
#include "replica/save/write.h"
#include "tests/support/temporary_folder.h"

namespace kintsugi::resume {

// How the ranks of a world hold its tensors: tensor-parallel neighbours, data-parallel copies whose optimizer state is
// cut into shards of flat ranges.
struct Cut {
  int ranks = 1, tp = 1, shards = 1;
};

struct Global {
  std::string key;
  Shape shape;
  int tp_axis = -1;  // -1: every tensor-parallel rank holds all of it
};

inline float ValueOf(const std::string& key, int64_t element) {
  return static_cast<float>((std::hash<std::string>()(key) % 1000) * 1000000 % 9973) + static_cast<float>(element);
}

class RankWorld {
 public:
  RankWorld(const Cut& cut, int rank, const std::vector<Global>& globals, TakeOver counter = TakeOver::kRankZero)
      : rank_(rank) {
    const int tp_rank = rank % cut.tp, dp_rank = rank / cut.tp, shard = dp_rank % cut.shards;
    tensors_.reserve(globals.size());
    for (const Global& global : globals) {
      ShardedTensor tensor;
      tensor.key = global.key;
      tensor.global_shape = tensor.local_shape = global.shape;
      tensor.global_offset = Shape(global.shape.size(), 0);
      if (global.tp_axis >= 0) {
        const auto axis = static_cast<size_t>(global.tp_axis);
        tensor.local_shape[axis] /= cut.tp;
        tensor.global_offset[axis] = tp_rank * tensor.local_shape[axis];
      }
      tensor.replica_id = {global.tp_axis < 0 ? tp_rank : 0, dp_rank / cut.shards};
      const int64_t whole = tensor.ElementCount();
      const FlatRange range{whole * shard / cut.shards, whole * (shard + 1) / cut.shards};
      if (range.start == range.stop) continue;
      if (cut.shards > 1) tensor.flattened_range = range;
      auto& memory = memories_.emplace_back(static_cast<size_t>(tensor.ElementCount()), -1.0f);
      tensor.memory.data = memory.data();
      tensor.memory.size_bytes = memory.size() * sizeof(float);
      const Status added = registry_.AddTensor(tensor);
      EXPECT_TRUE(added.ok()) << added.ToString();
    }
    ShardedObject object{"counter", ObjectKind::kMirrored,
                         [](void* self, std::vector<uint8_t>* out) {
                           const auto& bytes = static_cast<RankWorld*>(self)->counter_;
                           out->insert(out->end(), bytes.begin(), bytes.end());
                         },
                         [](void* self, const uint8_t* data, uint64_t size) {
                           static_cast<RankWorld*>(self)->counter_.assign(data, data + size);
                           return Status::Ok();
                         },
                         this};
    object.take_over = counter;
    if (counter == TakeOver::kOwn)
      object.take_over_all = [](void*, const std::vector<SavedObject>& saved, std::vector<uint8_t>* out) {
        out->assign(saved.front().data, saved.front().data + saved.front().size_bytes);
        return Status::Ok();
      };
    EXPECT_TRUE(registry_.AddObject(object).ok());
    SetValues(0);
    EXPECT_TRUE(registry_.AddObject(ObjectOf("progress", &progress_)).ok());
  }
  RankWorld(const RankWorld&) = delete;

  // Every element as it is globally.
  template <typename Each>
  void ForEach(Each each) {
    for (const auto& [key, tensor] : registry_.tensors()) {
      const layout::Box box = layout::BoxAt(tensor.global_offset, tensor.local_shape);
      const layout::Box whole = layout::WholeBox(tensor.global_shape);
      const FlatRange range = tensor.flattened_range.value_or(FlatRange{0, *layout::Volume(box)});
      auto* at = static_cast<float*>(tensor.memory.data);
      for (int64_t i = range.start; i < range.stop; ++i, ++at) each(key, Ravel(whole, Unravel(box, i)), *at);
    }
  }
  void Set() {
    ForEach([](const std::string& key, int64_t element, float& value) { value = ValueOf(key, element); });
    counter_ = {static_cast<uint8_t>(rank_), 7};
    SetValues(1);
  }
  void ExpectSet() {
    int64_t wrong = 0;
    ForEach([&](const std::string& key, int64_t element, float& value) {
      if (value != ValueOf(key, element) && wrong++ == 0)
        ADD_FAILURE() << "rank " << rank_ << " " << key << " element " << element << ": " << value;
    });
    EXPECT_EQ(wrong, 0);
    Values wanted = progress_;
    SetValues(1);
    EXPECT_EQ(wanted, progress_);
  }
  StateRegistry& registry() { return registry_; }
  std::vector<uint8_t>& counter() { return counter_; }
  Values& progress() { return progress_; }

 private:
  // As they are before a load, and as they are saved.
  void SetValues(int64_t at) {
    progress_ = Values();
    EXPECT_TRUE(progress_.Set("consumed_samples", at * 1234567890123).ok());
    EXPECT_TRUE(progress_.Set("opt_param_scheduler.num_steps", at * 96).ok());
    EXPECT_TRUE(progress_.Set("opt_param_scheduler.max_lr", 0.1 * static_cast<double>(at)).ok());
    EXPECT_TRUE(progress_.Set("opt_param_scheduler.lr_decay_style", at ? "cosine" : "").ok());
    EXPECT_TRUE(progress_.Set("is_warm", at == 1).ok());
    EXPECT_TRUE(progress_.Set("best_loss", at ? -HUGE_VAL : 0.0).ok());
  }

  const int rank_;
  std::vector<ShardedTensor> tensors_;
  std::vector<std::vector<float>> memories_;
  std::vector<uint8_t> counter_;
  Values progress_;
  StateRegistry registry_;
};

// A store within one process.
class LocalStore final : public Store {
 public:
  Status Set(const std::string& key, const std::vector<uint8_t>& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return Status::Ok();
  }
  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.contains(key); });
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<uint8_t>> values_;
};

// A checkpoint of step 5, as a world of that cut saves it. `copy`: which data-parallel copy writes.
inline std::string Save(const std::string& root, const Cut& cut, const std::vector<Global>& globals, int copy = 0,
                        const std::map<std::string, std::string>& aliases = {}) {
  const int dp = cut.ranks / cut.tp, copies = dp / cut.shards;
  std::vector<std::unique_ptr<RankWorld>> ranks;
  for (int rank = 0; rank < cut.ranks; ++rank) {
    ranks.push_back(std::make_unique<RankWorld>(cut, rank, globals));
    ranks.back()->Set();
  }
  const auto mirrored = [&](Rank of) -> Result<std::vector<uint8_t>> {
    return ranks[static_cast<size_t>(of.value())]->registry().CaptureMirrored();
  };
  checkpoint::PublishRequest publish;
  publish.root = root;
  publish.job = "job-a";
  publish.step = Step(5);
  publish.generation = Generation(1);
  for (int shard = 0; shard < cut.shards; ++shard)
    for (int tp = 0; tp < cut.tp; ++tp) {
      SaveEntry entry;
      for (int c = 0; c < copies; ++c) entry.holders.push_back(Rank((c * cut.shards + shard) * cut.tp + tp));
      entry.objects_of = entry.holders;
      const Rank writer = entry.holders[static_cast<size_t>(copy % copies)];
      checkpoint::SaveRequest request;
      request.root = root;
      request.identity = {"job-a", Step(5), Generation(1), cut.ranks};
      request.writer = writer;
      request.entries = {entry};
      request.aliases = &aliases;
      const auto written = WritePart(ranks[static_cast<size_t>(writer.value())]->registry(), request, mirrored);
      EXPECT_TRUE(written.ok()) << written.status().ToString();
      publish.expected_writers.push_back(writer);
    }
  std::sort(publish.expected_writers.begin(), publish.expected_writers.end());
  const auto published = Publish(publish);
  EXPECT_TRUE(published.ok()) << published.status().ToString();
  return root + "/" + checkpoint::FolderName(Step(5));
}

struct LoadedRank {
  std::unique_ptr<RankWorld> world;
  Status status;
  checkpoint::Loaded loaded;
};

// All ranks of `cut` load at once, as threads.
inline std::vector<LoadedRank> LoadAll(const std::string& path, const Cut& cut, const std::vector<Global>& globals,
                                       const ReshapeOptions& options = {}, TakeOver counter = TakeOver::kRankZero) {
  std::vector<LoadedRank> ranks(static_cast<size_t>(cut.ranks));
  LocalStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < cut.ranks; ++rank)
    threads.emplace_back([&, rank] {
      LoadedRank& own = ranks[static_cast<size_t>(rank)];
      own.world = std::make_unique<RankWorld>(cut, rank, globals, counter);
      checkpoint::LoadRequest request;
      request.path = path;
      request.self = Rank(rank);
      request.world_size = cut.ranks;
      auto loaded = LoadReshaped(own.world->registry(), request, options,
                                 Agreement(&store, Rank(rank), cut.ranks, TimePoint::Max()));
      own.status = loaded.status();
      if (!loaded.ok()) return;
      own.loaded = std::move(*loaded);
      own.status = own.world->registry().RestoreMirrored(own.loaded.mirrored);
    });
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

}  // namespace kintsugi::resume
