// World: four ranks with two shards (ranks 0 and 2, ranks 1 and 3) of a dense layout, a layout that all ranks hold
// whole, and a mirrored object each. Every value is a function of its key, its global element and the step, so that a
// loaded state can be checked against nothing but the step.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "callbacks/state/registry.h"
#include "replica/save/find.h"
#include "replica/save/load.h"
#include "replica/save/publish.h"
#include "replica/save/verify.h"
#include "replica/save/write.h"
#include "tests/support/temporary_folder.h"

namespace kintsugi::checkpoint {

inline constexpr int kWorldSize = 4;

template <typename... Parts>
bool Names(const std::string& text, const Parts&... parts) {
  return ((text.find(parts) != std::string::npos) && ...);
}

class RankState {
 public:
  // `elements` of the flattened tensor in all; half of them belong to each shard. Must be even.
  RankState(int rank, int64_t elements) : rank_(rank), master_(static_cast<size_t>(elements / 2)) {
    const int shard = rank % 2;
    ShardedTensor master = Tensor("optimizer.master", DType::kFloat32, {elements}, {elements}, {0}, master_);
    master.flattened_range = FlatRange{shard * elements / 2, (shard + 1) * elements / 2};
    Add(master);
    Add(Tensor("layer.bias", DType::kInt32, {6, 5}, {3, 5}, {3 * shard, 0}, bias_));
    Add(Tensor("scalar", DType::kFloat64, {}, {}, {}, scalar_));
    Add(Tensor("nothing", DType::kFloat32, {0}, {0}, {0}, nothing_));
    ShardedTensor whole = Tensor("expert.whole", DType::kUInt8, {7}, {7}, {0}, whole_);
    whole.layout = 1;
    Add(whole);
    ShardedObject rng{"rng", ObjectKind::kMirrored,
                      [](void* self, std::vector<uint8_t>* out) {
                        const auto& bytes = static_cast<RankState*>(self)->rng_;
                        out->insert(out->end(), bytes.begin(), bytes.end());
                      },
                      [](void* self, const uint8_t* data, uint64_t size) {
                        static_cast<RankState*>(self)->rng_.assign(data, data + size);
                        return Status::Ok();
                      },
                      this};
    EXPECT_TRUE(registry_.AddObject(rng).ok());
  }
  RankState(const RankState&) = delete;

  void SetTo(uint64_t step) {
    const uint64_t first = static_cast<uint64_t>(rank_ % 2) * master_.size();
    for (size_t i = 0; i < master_.size(); ++i) master_[i] = static_cast<float>((first + i) * 31 % 9973 + step);
    for (size_t i = 0; i < bias_.size(); ++i) bias_[i] = static_cast<int32_t>(1000 * step + 100 * (rank_ % 2) + i);
    scalar_[0] = 0.5 + static_cast<double>(step);
    for (size_t i = 0; i < whole_.size(); ++i) whole_[i] = static_cast<uint8_t>(step + i);
    rng_.assign({static_cast<uint8_t>(rank_), static_cast<uint8_t>(step), 42});
  }
  // Everything as bytes: tensors in key order, then the object.
  std::vector<uint8_t> Bytes() const {
    std::vector<uint8_t> bytes;
    for (const auto& [key, tensor] : registry_.tensors()) {
      const auto* data = static_cast<const uint8_t*>(tensor.memory.data);
      bytes.insert(bytes.end(), data, data + tensor.memory.size_bytes);
    }
    bytes.insert(bytes.end(), rng_.begin(), rng_.end());
    return bytes;
  }
  StateRegistry& registry() { return registry_; }

 private:
  template <typename T>
  ShardedTensor Tensor(const std::string& key, DType dtype, Shape global, Shape local, Shape offset,
                       std::vector<T>& memory) {
    ShardedTensor tensor;
    tensor.key = key;
    tensor.dtype = dtype;
    tensor.global_shape = std::move(global);
    tensor.local_shape = std::move(local);
    tensor.global_offset = std::move(offset);
    tensor.memory.data = memory.data();
    tensor.memory.size_bytes = memory.size() * sizeof(T);
    return tensor;
  }
  void Add(const ShardedTensor& tensor) {
    const Status added = registry_.AddTensor(tensor);
    EXPECT_TRUE(added.ok()) << added.ToString();
  }

  const int rank_;
  std::vector<float> master_, nothing_;
  std::vector<int32_t> bias_ = std::vector<int32_t>(15);
  std::vector<double> scalar_ = std::vector<double>(1);
  std::vector<uint8_t> whole_ = std::vector<uint8_t>(7);
  std::vector<uint8_t> rng_;
  StateRegistry registry_;
};

class World {
 public:
  explicit World(std::string root, FileSystem& files, int64_t elements = 64) : root_(std::move(root)), files_(files) {
    for (int rank = 0; rank < kWorldSize; ++rank) ranks_.push_back(std::make_unique<RankState>(rank, elements));
  }

  const std::string& root() const { return root_; }
  FileSystem& files() { return files_; }
  RankState& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  void SetTo(uint64_t step) {
    for (auto& rank : ranks_) rank->SetTo(step);
  }

  // Rank 0 writes its shard and the whole layout, rank 1 the other shard.
  SaveRequest Request(int writer, uint64_t step, uint64_t generation) const {
    SaveRequest request;
    request.root = root_;
    request.identity = {job, Step(step), Generation(generation), kWorldSize};
    request.writer = Rank(writer);
    if (writer == 0) {
      request.entries.push_back({0, {Rank(0), Rank(2)}, {Rank(0), Rank(2)}});
      request.entries.push_back({1, {Rank(0), Rank(1), Rank(2), Rank(3)}, {}});
    } else {
      request.entries.push_back({0, {Rank(1), Rank(3)}, {Rank(1), Rank(3)}});
    }
    return request;
  }
  MirroredOf Mirrored() {
    return [this](Rank of) -> Result<std::vector<uint8_t>> { return rank(of.value()).registry().CaptureMirrored(); };
  }
  Status Write(int writer, uint64_t step, uint64_t generation) {
    return WritePart(rank(writer).registry(), Request(writer, step, generation), Mirrored(), files_).status();
  }
  PublishRequest ToPublish(uint64_t step, uint64_t generation) const {
    PublishRequest request;
    request.root = root_;
    request.job = job;
    request.step = Step(step);
    request.generation = Generation(generation);
    request.expected_writers = {Rank(0), Rank(1)};
    request.side_files = side_files;
    return request;
  }
  Result<PublishedSave> PublishStep(uint64_t step, uint64_t generation, int keep = 2) {
    PublishRequest request = ToPublish(step, generation);
    request.keep = {keep, keep_every};
    return Publish(request, files_);
  }
  // The whole of it: state of `step`, both parts, publication.
  Status Save(uint64_t step, uint64_t generation, int keep = 2) {
    SetTo(step);
    KINTSUGI_RETURN_IF_ERROR(Write(0, step, generation));
    KINTSUGI_RETURN_IF_ERROR(Write(1, step, generation));
    return PublishStep(step, generation, keep).status();
  }
  std::string Path(uint64_t step) const { return root_ + "/" + FolderOf(step); }
  static std::string FolderOf(uint64_t step) {
    std::string digits = std::to_string(step);
    return "step_" + std::string(10 - digits.size(), '0') + digits;
  }

  // Loads every rank from `path`; the error of the first that fails. The state becomes garbage before.
  Status LoadAll(const std::string& path) {
    SetTo(250);
    for (int r = 0; r < kWorldSize; ++r) {
      LoadRequest request;
      request.path = path;
      request.self = Rank(r);
      auto loaded = Load(rank(r).registry(), request, files_);
      if (!loaded.ok()) return loaded.status();
      KINTSUGI_RETURN_IF_ERROR(rank(r).registry().RestoreMirrored(loaded->mirrored));
    }
    return Status::Ok();
  }
  // That every rank's state is exactly that of `step`.
  bool IsAt(uint64_t step) {
    for (int r = 0; r < kWorldSize; ++r) {
      RankState expected(r, elements());
      expected.SetTo(step);
      if (rank(r).Bytes() != expected.Bytes()) return false;
    }
    return true;
  }

  // A configuration and a tokenizer on the publisher's disk, which go with every checkpoint from now on.
  void AddSideFiles() {
    EXPECT_TRUE(files_.MakeFolder("side").ok());
    EXPECT_TRUE(WriteSmallFile(files_, "side/config.json", "{\"layers\": 2}\n").ok());
    EXPECT_TRUE(WriteSmallFile(files_, "side/tokenizer.model", std::string((1 << 20) + 7, 't')).ok());
    EXPECT_TRUE(files_.SyncFolder("side").ok());
    side_files = {"side/config.json", "side/tokenizer.model"};
  }

  std::string job = "job-a";
  uint64_t keep_every = 0;
  std::vector<std::string> side_files;

 private:
  int64_t elements() { return rank(0).registry().tensors().at("optimizer.master").global_shape[0]; }
  std::string root_;
  FileSystem& files_;
  std::vector<std::unique_ptr<RankState>> ranks_;
};

}  // namespace kintsugi::checkpoint
