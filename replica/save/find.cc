#include "replica/save/find.h"

#include <algorithm>
#include <optional>

#include "callbacks/state/key.h"
#include "replica/save/names.h"

namespace kintsugi::checkpoint {
namespace {

Status Damaged(const std::string& what) { return {StatusCode::kDataLoss, what + ": use another checkpoint"}; }

// That a data file is there in the size its part gives.
Status CheckFile(FileSystem& files, const std::string& path, uint64_t size_bytes) {
  auto file = files.Open(path);
  if (file.status().code() == StatusCode::kNotFound) return Damaged("'" + path + "' is missing");
  if (!file.ok()) return file.status();
  if ((*file)->size_bytes() == size_bytes) return Status::Ok();
  return Damaged("'" + path + "' has " + std::to_string((*file)->size_bytes()) + " bytes instead of " +
                 std::to_string(size_bytes));
}

struct Search {
  const std::string& root;
  FileSystem& files;
  std::vector<std::string> refused;
  std::optional<CheckpointInfo> without_quorum;

  std::optional<CheckpointInfo> Complete(Step step) {
    auto info = Inspect(Join(root, FolderName(step)), files);
    if (info.ok()) return std::move(info).value();
    refused.push_back(info.status().ToString());
    return std::nullopt;
  }

  // The first complete one, of `job` where that is given.
  std::optional<CheckpointInfo> First(const std::vector<Step>& steps, const std::string* job) {
    for (Step step : steps) {
      auto info = Complete(step);
      if (!info || (job && info->manifest.identity.job != *job)) continue;
      if (info->manifest.moves_latest) return info;
      if (!without_quorum) without_quorum = std::move(info);
    }
    return std::nullopt;
  }
};

}  // namespace

Result<CheckpointInfo> ReadManifest(const std::string& path, FileSystem& files) {
  const std::string name = Join(path, kManifestName);
  auto text = ReadSmallFile(files, name, kManifestBytesMax);
  if (text.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound,
                  "'" + path + "' holds no complete checkpoint: there is no " + std::string(kManifestName) + " in it");
  if (!text.ok()) return text.status();
  CheckpointInfo info;
  info.path = path;
  KINTSUGI_ASSIGN_OR_RETURN(info.manifest, DecodeManifest(*text, name));
  for (const ListedPart& part : info.manifest.parts) info.data_bytes += part.data_bytes;
  return info;
}

Result<Part> ReadPart(const CheckpointInfo& info, const ListedPart& listed, FileSystem& files) {
  const std::string name = Join(info.path, listed.file);
  auto text = ReadSmallFile(files, name, kPartBytesMax);
  if (text.status().code() == StatusCode::kNotFound) return Damaged("'" + name + "' is missing");
  if (!text.ok()) return text.status();
  if (text->size() != listed.file_bytes ||
      ChecksumOf({reinterpret_cast<const uint8_t*>(text->data()), text->size()}) != listed.digest)
    return Damaged("'" + name + "' is not the part that the manifest lists");
  KINTSUGI_ASSIGN_OR_RETURN(Part part, DecodePart(*text, name));
  if (part.identity != info.manifest.identity || part.writer != listed.writer)
    return Damaged("'" + name + "' is of rank " + part.writer.ToString() + " and " + Describe(part.identity) +
                   ", the manifest of " + Describe(info.manifest.identity));
  for (const StoredShard& shard : part.shards)
    KINTSUGI_RETURN_IF_ERROR(CheckFile(files, Join(info.path, shard.file), shard.file_bytes));
  if (!part.objects.empty())
    KINTSUGI_RETURN_IF_ERROR(CheckFile(files, Join(info.path, part.objects_file), part.objects_file_bytes));
  return part;
}

Result<CheckpointInfo> Inspect(const std::string& path, FileSystem& files) {
  KINTSUGI_ASSIGN_OR_RETURN(CheckpointInfo info, ReadManifest(path, files));
  std::vector<Part> parts;
  for (const ListedPart& listed : info.manifest.parts) {
    KINTSUGI_ASSIGN_OR_RETURN(Part part, ReadPart(info, listed, files));
    // Only who wrote what is looked at below: the block checksums of a large checkpoint need not stay in memory.
    for (StoredShard& shard : part.shards) shard.tensors.clear();
    parts.push_back(std::move(part));
  }
  std::vector<const Part*> all;
  for (const Part& part : parts) all.push_back(&part);
  KINTSUGI_RETURN_IF_ERROR(CheckComplete(info.manifest.identity, all));
  const auto named = StepOfFolder(BaseName(path));
  if (named && *named != info.step())
    return Damaged("'" + path + "' holds step " + info.step().ToString() + ", not the one of its name");
  return info;
}

Result<std::vector<Step>> ListSteps(const std::string& root, FileSystem& files) {
  KINTSUGI_ASSIGN_OR_RETURN(const auto names, files.List(root));
  std::vector<Step> steps;
  for (const std::string& name : names)
    if (const auto step = StepOfFolder(name)) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Result<Step> ReadLatest(const std::string& root, FileSystem& files) {
  KINTSUGI_ASSIGN_OR_RETURN(std::string text, ReadSmallFile(files, Join(root, kLatestName), 256));
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (const auto step = StepOfFolder(text)) return *step;
  return Damaged("'" + Join(root, kLatestName) + "' names no checkpoint ('" + PrintableKey(text) + "')");
}

Result<CheckpointInfo> FindNewestComplete(const std::string& root, FileSystem& files,
                                          std::vector<std::string>* refused) {
  KINTSUGI_ASSIGN_OR_RETURN(const auto steps, ListSteps(root, files));
  Search search{root, files, {}, std::nullopt};
  std::optional<CheckpointInfo> found;
  // `latest` says which job owns the root now: an abandoned run may have left higher steps behind. Of that job a newer
  // one than `latest` names is as good: its writer was interrupted between two renames.
  if (const auto latest = ReadLatest(root, files); latest.ok()) {
    if (const auto named = search.Complete(*latest)) found = search.First(steps, &named->manifest.identity.job);
  } else if (latest.status().code() != StatusCode::kNotFound) {
    search.refused.push_back(latest.status().ToString());
  }
  if (!found) found = search.First(steps, nullptr);
  if (!found) found = std::move(search.without_quorum);
  std::string reasons;
  for (const std::string& reason : search.refused) reasons += "; " + reason;
  if (refused) *refused = std::move(search.refused);
  if (found) return std::move(*found);
  return Status(StatusCode::kNotFound, "'" + root + "' holds no complete checkpoint" + reasons);
}

}  // namespace kintsugi::checkpoint
