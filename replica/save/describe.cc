#include "replica/save/describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "replica/save/find.h"
#include "replica/save/names.h"
#include "replica/save/verify.h"

namespace kintsugi::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

Json Numbers(const std::vector<Rank>& ranks) {
  Json list = Json::array();
  for (Rank rank : ranks) list.push_back(rank.value());
  return list;
}

Json ToJson(const StoredTensor& stored) {
  const ShardedTensor& t = stored.tensor;
  Json json = {{"key", t.key},
               {"dtype", DTypeName(t.dtype)},
               {"global_shape", t.global_shape},
               {"local_shape", t.local_shape},
               {"global_offset", t.global_offset}};
  json["flattened_range"] = nullptr;
  if (t.flattened_range) json["flattened_range"] = {t.flattened_range->start, t.flattened_range->stop};
  json["size_bytes"] = stored.extent.size_bytes;
  json["digest"] = ToHex(DigestOf(stored.extent.blocks));
  if (stored.sum) json["sum"] = ToHex(*stored.sum);
  return json;
}

Json ToJson(const Part& part, const std::string& file) {
  Json shards = Json::array(), objects = Json::array();
  for (const StoredShard& shard : part.shards) {
    Json tensors = Json::array();
    for (const StoredTensor& tensor : shard.tensors) tensors.push_back(ToJson(tensor));
    shards.push_back({{"layout", shard.layout},
                      {"holders", Numbers(shard.holders)},
                      {"file", shard.file},
                      {"file_bytes", shard.file_bytes},
                      {"tensors", std::move(tensors)}});
  }
  for (const StoredObjects& stored : part.objects)
    objects.push_back({{"rank", stored.rank.value()},
                       {"size_bytes", stored.extent.size_bytes},
                       {"digest", ToHex(DigestOf(stored.extent.blocks))}});
  return {
      {"writer", part.writer.value()}, {"file", file}, {"shards", std::move(shards)}, {"objects", std::move(objects)}};
}

Json DescribeFolder(const std::string& path, bool verify, bool with_parts, FileSystem& files) {
  Json json = {{"path", path}, {"complete", false}, {"problem", nullptr}};
  const auto note = [&](const Status& status) {
    if (json["problem"].is_null()) json["problem"] = status.ToString();
  };
  const auto info = ReadManifest(path, files);
  if (!info.ok()) {
    note(info.status());
    return json;
  }
  const Status complete = Inspect(path, files).status();
  json["complete"] = complete.ok();
  if (!complete.ok()) note(complete);
  if (verify) {
    const Status verified = complete.ok() ? Verify(path, files) : complete;
    json["verified"] = verified.ok();
    if (!verified.ok()) note(verified);
  }
  const SaveIdentity& identity = info->manifest.identity;
  json["job"] = identity.job;
  json["step"] = identity.step.value();
  json["generation"] = identity.generation.value();
  json["world_size"] = identity.world_size;
  json["data_bytes"] = info->data_bytes;
  json["moves_latest"] = info->manifest.moves_latest;
  if (!with_parts) return json;
  json["side_files"] = Json::array();
  for (const SideFile& side : info->manifest.side_files)
    json["side_files"].push_back(
        {{"name", side.name}, {"size_bytes", side.extent.size_bytes}, {"digest", ToHex(DigestOf(side.extent.blocks))}});
  json["tensor_sum"] = kTensorSumName;
  json["tensors"] = Json::array();
  for (const TensorSum& tensor : info->manifest.tensor_sums)
    json["tensors"].push_back(
        {{"key", tensor.key}, {"dtype", DTypeName(tensor.dtype)}, {"shape", tensor.shape}, {"sum", ToHex(tensor.sum)}});
  json["parts"] = Json::array();
  for (const ListedPart& listed : info->manifest.parts) {
    const auto part = ReadPart(*info, listed, files);
    if (part.ok())
      json["parts"].push_back(ToJson(*part, listed.file));
    else
      json["parts"].push_back(
          {{"writer", listed.writer.value()}, {"file", listed.file}, {"problem", part.status().ToString()}});
  }
  return json;
}

Result<Json> DescribeRoot(const std::string& root, const std::vector<std::string>& names, bool verify,
                          FileSystem& files) {
  Json json = {{"root", root}, {"latest", nullptr}, {"newest_complete", nullptr}};
  if (const auto latest = ReadLatest(root, files); latest.ok()) json["latest"] = FolderName(*latest);
  if (const auto newest = FindNewestComplete(root, files); newest.ok())
    json["newest_complete"] = BaseName(newest->path);
  KINTSUGI_ASSIGN_OR_RETURN(const auto steps, ListSteps(root, files));
  json["checkpoints"] = Json::array();
  for (Step step : steps)
    json["checkpoints"].push_back(DescribeFolder(Join(root, FolderName(step)), verify, false, files));
  json["unfinished"] = Json::array();
  for (const std::string& name : names)
    if (UnfinishedOfFolder(name)) json["unfinished"].push_back(name);
  return json;
}

}  // namespace

Result<std::string> DescribeCheckpoint(const std::string& path, bool verify, FileSystem& files) {
  KINTSUGI_ASSIGN_OR_RETURN(auto names, files.List(path));
  std::sort(names.begin(), names.end());
  const std::string base = BaseName(path);
  const bool is_folder = StepOfFolder(base) || UnfinishedOfFolder(base) ||
                         std::binary_search(names.begin(), names.end(), std::string(kManifestName));
  // Names on the disk may be any bytes; what is no UTF-8 is shown with replacement characters.
  const auto text = [](const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); };
  if (is_folder) return text(DescribeFolder(path, verify, true, files));
  KINTSUGI_ASSIGN_OR_RETURN(const Json root, DescribeRoot(path, names, verify, files));
  return text(root);
}

}  // namespace kintsugi::checkpoint
