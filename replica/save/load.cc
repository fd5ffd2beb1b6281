#include "replica/save/load.h"

#include <algorithm>
#include <map>
#include <optional>

#include "replica/save/names.h"
#include "replica/save/verify.h"
#include "runtime/base/check.h"

namespace kintsugi::checkpoint {
namespace {

bool SameShard(const ShardedTensor& a, const ShardedTensor& b) {
  return a.dtype == b.dtype && a.global_shape == b.global_shape && a.local_shape == b.local_shape &&
         a.global_offset == b.global_offset && a.flattened_range == b.flattened_range && a.layout == b.layout;
}

std::string DescribeWithLayout(const ShardedTensor& tensor) {
  return Describe(tensor) + " of layout " + std::to_string(tensor.layout);
}

class Loader {
 public:
  Loader(const StateRegistry& registry, const LoadRequest& request, FileSystem& files)
      : registry_(registry), request_(request), files_(files), mirrored_missing_(registry.HasMirrored()) {}

  Result<Loaded> Run();

 private:
  // Registered tensors that are not found yet stay in missing_; others move to sources_.
  void Match(const StoredShard& shard);
  Status FindSources();
  // Looks through one part for what is missing; with `own` only at shards that this rank itself held.
  Status Search(const ListedPart& listed, bool own);
  struct Source {
    const ShardedTensor* tensor;
    Extent extent;
  };
  Status ReadSources();
  Status ReadTensor(ReadableFile& file, const std::string& path, const Source& source);
  Status ExplainMissing() const;
  Status Poll() const;

  const StateRegistry& registry_;
  const LoadRequest& request_;
  FileSystem& files_;
  const TimePoint begin_ = SteadyClock::SteadyNow();
  Loaded loaded_;
  std::optional<ArrivedSums> arrived_;  // where the checkpoint has sums
  std::map<std::string, const ShardedTensor*> missing_;
  std::map<std::string, StoredTensor> unlike_;          // same key, another shard: for the message
  std::map<std::string, std::vector<Source>> sources_;  // by file
  std::shared_ptr<uint8_t> buffer_;                     // a block on its way to a device
  bool mirrored_missing_;
  std::optional<Extent> mirrored_;
};

Status Loader::Poll() const {
  const std::string progress = " after " + std::to_string(loaded_.bytes) + " bytes";
  if (request_.cancel && request_.cancel->cancelled())
    return {StatusCode::kCancelled, "a newer generation superseded the load" + progress};
  const TimePoint now = SteadyClock::SteadyNow();
  if (now < request_.deadline) return Status::Ok();
  return {StatusCode::kDeadlineExceeded,
          "the load's time ran out" + progress + ": elapsed " +
              std::to_string(static_cast<int64_t>(ToMilliseconds(now - begin_))) + " ms, limit " +
              std::to_string(static_cast<int64_t>(ToMilliseconds(request_.deadline - begin_))) + " ms"};
}

void Loader::Match(const StoredShard& shard) {
  for (const StoredTensor& stored : shard.tensors) {
    const auto wanted = missing_.find(stored.tensor.key);
    if (wanted == missing_.end()) continue;
    if (!SameShard(*wanted->second, stored.tensor)) {
      unlike_.emplace(stored.tensor.key, stored);
      continue;
    }
    KINTSUGI_CHECK(wanted->second->key == stored.tensor.key, "a tensor that is looked for is listed under its key");
    sources_[stored.extent.file].push_back({wanted->second, stored.extent});
    missing_.erase(wanted);
  }
}

Status Loader::ExplainMissing() const {
  const auto& [key, tensor] = *missing_.begin();
  const std::string more = missing_.size() > 1 ? " (and " + std::to_string(missing_.size() - 1) + " more)" : "";
  const auto other = unlike_.find(key);
  if (other == unlike_.end())
    return {StatusCode::kFailedPrecondition, "tensor '" + key + "'" + more + " is registered as " +
                                                 DescribeWithLayout(*tensor) + " but not in the checkpoint"};
  return {StatusCode::kFailedPrecondition,
          "tensor '" + key + "'" + more + " is registered as " + DescribeWithLayout(*tensor) +
              ", the checkpoint of world size " + std::to_string(loaded_.info.manifest.identity.world_size) +
              " holds " + DescribeWithLayout(other->second.tensor) +
              ": another layout is the reshard engine's matter (SaveContext::reshape), which this run does not have"};
}

Status Loader::Search(const ListedPart& listed, bool own) {
  const auto mine = [&](const std::vector<Rank>& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), request_.self);
  };
  if ((missing_.empty() && !mirrored_missing_) || (own && !mine(listed.holders))) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(Poll());
  KINTSUGI_ASSIGN_OR_RETURN(const Part part, ReadPart(loaded_.info, listed, files_));
  for (const StoredShard& shard : part.shards)
    if (!own || mine(shard.holders)) Match(shard);
  for (const StoredObjects& objects : part.objects) {
    if (!mirrored_missing_ || objects.rank != request_.self) continue;
    mirrored_ = objects.extent;
    mirrored_missing_ = false;
  }
  return Status::Ok();
}

Status Loader::FindSources() {
  for (const auto& [key, tensor] : registry_.tensors()) {
    KINTSUGI_RETURN_IF_ERROR(registry_.DeviceOf(tensor).status());
    if (request_.elsewhere && request_.elsewhere->count(key)) continue;
    missing_.emplace(key, &tensor);
  }
  for (const bool own : {true, false})
    for (const ListedPart& listed : loaded_.info.manifest.parts) KINTSUGI_RETURN_IF_ERROR(Search(listed, own));
  // Who saved may not have known of tensors without elements: nothing of them is missing.
  std::erase_if(missing_,
                [&](const auto& one) { return one.second->ByteCount() == 0 && !unlike_.contains(one.first); });
  if (!missing_.empty()) return ExplainMissing();
  if (mirrored_missing_)
    return {StatusCode::kFailedPrecondition, "the checkpoint of " + Describe(loaded_.info.manifest.identity) +
                                                 " holds no mirrored objects of this rank"};
  return Status::Ok();
}

Status Loader::ReadTensor(ReadableFile& file, const std::string& path, const Source& source) {
  const std::string what = "tensor '" + source.tensor->key + "'";
  KINTSUGI_CHECK(source.tensor->memory.size_bytes == source.extent.size_bytes,
                 "a tensor is read into memory of its size");
  auto* const data = static_cast<uint8_t*>(source.tensor->memory.data);
  const auto poll = [this] { return Poll(); };
  KINTSUGI_ASSIGN_OR_RETURN(const DeviceMemory* const device, registry_.DeviceOf(*source.tensor));
  if (!device)
    return ReadExtent(file, path, source.extent, what, data, poll, arrived_ ? arrived_->Listener() : Arrived());
  if (!buffer_) {
    KINTSUGI_ASSIGN_OR_RETURN(buffer_, device->AllocateHost(kBlockBytes));
  }
  const auto take = [&](uint64_t offset, const uint8_t* block, uint64_t size_bytes) {
    return device->Write(data + offset, block, size_bytes, {.deadline = request_.deadline}).Annotate(what);
  };
  return ReadExtent(file, path, source.extent, what, buffer_.get(), take, poll);
}

Status Loader::ReadSources() {
  const auto poll = [this] { return Poll(); };
  for (auto& [name, sources] : sources_) {
    // In the order of the file: sequential for the disk.
    std::sort(sources.begin(), sources.end(),
              [](const Source& a, const Source& b) { return a.extent.offset < b.extent.offset; });
    const std::string path = Join(request_.path, name);
    KINTSUGI_ASSIGN_OR_RETURN(const auto file, files_.Open(path));
    for (const Source& source : sources) {
      KINTSUGI_RETURN_IF_ERROR(ReadTensor(*file, path, source));
      loaded_.bytes += source.extent.size_bytes;
      loaded_.held[source.tensor->key] = source.tensor->key;
    }
  }
  if (!mirrored_) return Status::Ok();
  const std::string path = Join(request_.path, mirrored_->file);
  KINTSUGI_ASSIGN_OR_RETURN(const auto file, files_.Open(path));
  loaded_.mirrored.resize(mirrored_->size_bytes);
  loaded_.bytes += mirrored_->size_bytes;
  return ReadExtent(*file, path, *mirrored_, "mirrored objects", loaded_.mirrored.data(), poll);
}

Result<Loaded> Loader::Run() {
  KINTSUGI_ASSIGN_OR_RETURN(loaded_.info, ReadManifest(request_.path, files_));
  const int saved = loaded_.info.manifest.identity.world_size;
  const bool same_world = request_.world_size == 0 || request_.world_size == saved;
  if (request_.reshape && (!same_world || request_.always_reshape)) return request_.reshape(loaded_.info, request_);
  if (!same_world)
    return Status(StatusCode::kFailedPrecondition,
                  "the checkpoint is of " + std::to_string(saved) + " ranks, the run has " +
                      std::to_string(request_.world_size) +
                      ": that is the reshard engine's matter (SaveContext::reshape), which this run does not have");
  const Status found = FindSources();
  if (request_.reshape && (found.ok() || found.code() == StatusCode::kFailedPrecondition)) {
    KINTSUGI_ASSIGN_OR_RETURN(const bool all_fit, request_.all_fit(found.ok()));
    if (!all_fit) return request_.reshape(loaded_.info, request_);
  }
  KINTSUGI_RETURN_IF_ERROR(found);
  KINTSUGI_CHECK(missing_.empty() && !mirrored_missing_, "what is read was found whole");
  if (!loaded_.info.manifest.tensor_sums.empty()) arrived_.emplace(registry_);
  KINTSUGI_RETURN_IF_ERROR(ReadSources());
  if (arrived_) loaded_.sums = arrived_->Whole();
  return std::move(loaded_);
}

}  // namespace

Result<Loaded> Load(const StateRegistry& registry, const LoadRequest& request, FileSystem& files) {
  auto loaded = Loader(registry, request, files).Run();
  if (!loaded.ok())
    return loaded.status().Annotate("loading '" + request.path + "' on rank " + request.self.ToString());
  return loaded;
}

}  // namespace kintsugi::checkpoint
