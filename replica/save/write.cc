#include "replica/save/write.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "callbacks/state/key.h"
#include "replica/save/data_writer.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"
#include "runtime/base/generation_part.h"

namespace kintsugi::checkpoint {
namespace {

Status CheckRanks(const std::vector<Rank>& ranks, const SaveIdentity& identity, const std::string& what) {
  for (Rank rank : ranks)
    if (rank.value() < 0 || rank.value() >= identity.world_size)
      return {StatusCode::kInvalidArgument,
              what + " names rank " + rank.ToString() + " in a world of " + std::to_string(identity.world_size)};
  return Status::Ok();
}

Status CheckRequest(const SaveRequest& request) {
  const SaveIdentity& id = request.identity;
  if (request.root.empty()) return {StatusCode::kInvalidArgument, "a save needs a root folder"};
  if (id.world_size < 1 || id.world_size > kWorldSizeMax)
    return {StatusCode::kInvalidArgument, "world size " + std::to_string(id.world_size) + " of a save"};
  if (id.job.size() > kJobBytesMax)
    return {StatusCode::kInvalidArgument, "job of a save has " + std::to_string(id.job.size()) +
                                              " bytes; the limit is " + std::to_string(kJobBytesMax)};
  if (!id.job.empty()) KINTSUGI_RETURN_IF_ERROR(ValidateKey(id.job).Annotate("job of a save"));
  KINTSUGI_RETURN_IF_ERROR(CheckRanks({request.writer}, id, "the save"));
  std::set<int> layouts;
  for (const SaveEntry& entry : request.entries) {
    const std::string what = "entry of layout " + std::to_string(entry.layout);
    KINTSUGI_RETURN_IF_ERROR(CheckRanks(entry.holders, id, what));
    KINTSUGI_RETURN_IF_ERROR(CheckRanks(entry.objects_of, id, what));
    if (std::find(entry.holders.begin(), entry.holders.end(), request.writer) == entry.holders.end())
      return {StatusCode::kInvalidArgument, what + " is held by ranks " + DescribeRanks(entry.holders) + ", so rank " +
                                                request.writer.ToString() + " cannot write it"};
    if (entry.layout == kObjectsAlone) continue;
    if (entry.layout < 0 || entry.layout > kLayoutMax)
      return {StatusCode::kInvalidArgument, what + ": layouts are 0 to " + std::to_string(kLayoutMax)};
    if (!layouts.insert(entry.layout).second) return {StatusCode::kInvalidArgument, what + " appears twice"};
  }
  return Status::Ok();
}

std::vector<Rank> Sorted(const std::vector<Rank>& ranks) {
  const std::set<Rank> sorted(ranks.begin(), ranks.end());
  return {sorted.begin(), sorted.end()};
}

std::vector<SaveEntry> ShardsOf(const std::vector<SaveEntry>& entries) {
  std::vector<SaveEntry> shards;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(shards),
               [](const SaveEntry& entry) { return entry.layout != kObjectsAlone; });
  return shards;
}

// One save of one part; lives for the time of WritePart.
class PartWriter {
 public:
  PartWriter(const StateRegistry& registry, const SaveRequest& request, const MirroredOf& mirrored_of,
             FileSystem& files)
      : registry_(registry),
        request_(request),
        mirrored_of_(mirrored_of),
        files_(files),
        shards_(ShardsOf(request.entries)),
        folder_(Join(request.root,
                     UnfinishedFolderName(request.identity.step, request.identity.generation, request.identity.job))) {}

  Result<Written> Run();

 private:
  // A data file of known size that room was made for.
  struct Planned {
    std::string name;
    uint64_t size_bytes = 0;
    std::unique_ptr<WritableFile> file;
  };

  Status Plan();
  Status MakeRoom();
  Status WriteShard(const SaveEntry& entry, Planned planned);
  Status WriteObjects(Planned planned);
  Status WriteSummary();
  Status RemoveOlderAttempts();
  Status Poll() const;
  Planned PlanFile(std::string name, const std::vector<uint64_t>& sizes) const;

  const StateRegistry& registry_;
  const SaveRequest& request_;
  const MirroredOf& mirrored_of_;
  FileSystem& files_;
  const std::vector<SaveEntry> shards_;
  const std::string folder_;
  bool made_folder_ = false;
  const TimePoint begin_ = SteadyClock::SteadyNow();
  Part part_;
  std::vector<Planned> planned_;  // one per shard, and the objects' file last where there is one
  std::vector<Rank> objects_of_;
  std::vector<std::vector<uint8_t>> objects_;  // in the order of objects_of_
  Written written_;

 public:
  const std::string& folder() const { return folder_; }
  bool made_folder() const { return made_folder_; }
};

Status PartWriter::Poll() const {
  const auto progress = [&] { return " after " + std::to_string(written_.data_bytes) + " bytes of files done"; };
  if (request_.cancel && request_.cancel->cancelled())
    return {StatusCode::kCancelled, "a newer generation superseded the save" + progress()};
  const TimePoint now = SteadyClock::SteadyNow();
  if (now < request_.deadline) return Status::Ok();
  return {StatusCode::kDeadlineExceeded,
          "the save's time ran out" + progress() + ": elapsed " +
              std::to_string(static_cast<int64_t>(ToMilliseconds(now - begin_))) + " ms, limit " +
              std::to_string(static_cast<int64_t>(ToMilliseconds(request_.deadline - begin_))) + " ms"};
}

PartWriter::Planned PartWriter::PlanFile(std::string name, const std::vector<uint64_t>& sizes) const {
  uint64_t end = 0;
  for (uint64_t size : sizes) end = Aligned(end) + size;
  return {std::move(name), end, nullptr};
}

Status PartWriter::Plan() {
  part_.identity = request_.identity;
  part_.writer = request_.writer;
  part_.has_mirrored = registry_.HasMirrored();
  std::set<int> layouts;
  for (const auto& [key, tensor] : registry_.tensors()) layouts.insert(tensor.layout);
  part_.layouts.assign(layouts.begin(), layouts.end());
  std::set<Rank> objects_of;
  for (const SaveEntry& entry : request_.entries) objects_of.insert(entry.objects_of.begin(), entry.objects_of.end());
  for (const SaveEntry& entry : shards_) {
    std::vector<uint64_t> sizes;
    for (const ShardedTensor* tensor : registry_.TensorsOfLayout(entry.layout)) {
      KINTSUGI_RETURN_IF_ERROR(registry_.DeviceOf(*tensor).status());
      sizes.push_back(tensor->memory.size_bytes);
    }
    planned_.push_back(PlanFile(ShardName(entry.layout, Sorted(entry.holders)), sizes));
  }
  if (!part_.has_mirrored || objects_of.empty()) return Status::Ok();
  std::vector<uint64_t> sizes;
  for (Rank rank : objects_of) {
    auto bytes = mirrored_of_(rank);
    if (!bytes.ok()) return bytes.status().Annotate("mirrored objects of rank " + rank.ToString());
    sizes.push_back(bytes->size());
    objects_.push_back(std::move(bytes).value());
  }
  objects_of_.assign(objects_of.begin(), objects_of.end());
  planned_.push_back(PlanFile(ObjectsName(request_.writer), sizes));
  return Status::Ok();
}

Status PartWriter::RemoveOlderAttempts() {
  KINTSUGI_ASSIGN_OR_RETURN(const auto names, files_.List(request_.root));
  for (const std::string& name : names) {
    const auto attempt = UnfinishedOfFolder(name);
    if (attempt && attempt->job_tag == TagOfJob(request_.identity.job) && attempt->step == request_.identity.step &&
        attempt->generation < request_.identity.generation &&
        PartOf(attempt->generation) == PartOf(request_.identity.generation))  // another part may be writing
      KINTSUGI_RETURN_IF_ERROR(files_.Remove(Join(request_.root, name)));
  }
  return Status::Ok();
}

Status PartWriter::MakeRoom() {
  KINTSUGI_RETURN_IF_ERROR(files_.MakeFolder(request_.root));
  KINTSUGI_RETURN_IF_ERROR(RemoveOlderAttempts());
  KINTSUGI_RETURN_IF_ERROR(files_.MakeFolder(folder_));
  made_folder_ = true;
  uint64_t total = 0;
  for (const Planned& planned : planned_) total += planned.size_bytes;
  for (Planned& planned : planned_) {
    KINTSUGI_ASSIGN_OR_RETURN(planned.file, files_.Create(Join(folder_, planned.name)));
    KINTSUGI_RETURN_IF_ERROR(
        planned.file->Reserve(planned.size_bytes).Annotate("making room for " + std::to_string(total) + " bytes"));
  }
  return Status::Ok();
}

Status PartWriter::WriteShard(const SaveEntry& entry, Planned planned) {
  StoredShard shard{entry.layout, Sorted(entry.holders), planned.name, planned.size_bytes, {}};
  DataWriter writer(std::move(planned.file), planned.name, [this] { return Poll(); });
  std::map<std::string_view, std::vector<std::string>> aliases;
  if (request_.aliases)
    for (const auto& [alias, key] : *request_.aliases) aliases[key].push_back(alias);
  uint64_t end = 0;
  for (const ShardedTensor* tensor : registry_.TensorsOfLayout(entry.layout)) {
    const Memory& memory = tensor->memory;
    KINTSUGI_CHECK(memory.size_bytes == tensor->ByteCount(), "registered memory is as large as its shard");
    KINTSUGI_ASSIGN_OR_RETURN(const DeviceMemory* const device, registry_.DeviceOf(*tensor));
    LogicalSum sum(*tensor);
    auto extent = device ? writer.AppendFrom(*device, memory, &sum)
                         : writer.Append({static_cast<const uint8_t*>(memory.data), memory.size_bytes}, &sum);
    if (!extent.ok()) return extent.status().Annotate("tensor '" + tensor->key + "'");
    KINTSUGI_CHECK(extent->size_bytes == memory.size_bytes && extent->offset >= end,
                   "tensors lie in their file whole, one behind the other");
    end = extent->offset + extent->size_bytes;
    shard.tensors.push_back({*tensor, std::move(extent).value(), {}, sum.value()});
    if (const auto tied = aliases.find(tensor->key); tied != aliases.end()) shard.tensors.back().aliases = tied->second;
  }
  KINTSUGI_RETURN_IF_ERROR(writer.Finish());
  KINTSUGI_CHECK(writer.size_bytes() == shard.file_bytes, "a shard's file has another size than planned");
  part_.shards.push_back(std::move(shard));
  return Status::Ok();
}

Status PartWriter::WriteObjects(Planned planned) {
  part_.objects_file = planned.name;
  part_.objects_file_bytes = planned.size_bytes;
  DataWriter writer(std::move(planned.file), planned.name, [this] { return Poll(); });
  KINTSUGI_CHECK(objects_.size() == objects_of_.size(), "mirrored objects are each of a rank");
  for (size_t i = 0; i < objects_.size(); ++i) {
    KINTSUGI_ASSIGN_OR_RETURN(Extent extent, writer.Append(objects_[i]));
    part_.objects.push_back({objects_of_[i], std::move(extent)});
  }
  KINTSUGI_RETURN_IF_ERROR(writer.Finish());
  KINTSUGI_CHECK(writer.size_bytes() == part_.objects_file_bytes, "an objects' file has another size than planned");
  return Status::Ok();
}

Status PartWriter::WriteSummary() {
  const std::string text = Encode(part_);
  if (text.size() > kPartBytesMax)
    return {StatusCode::kResourceExhausted, "the part's description has " + std::to_string(text.size()) +
                                                " bytes; the limit is " + std::to_string(kPartBytesMax) +
                                                ": register fewer tensors per rank"};
  KINTSUGI_RETURN_IF_ERROR(WriteSmallFile(files_, Join(folder_, PartName(request_.writer)), text));
  return files_.SyncFolder(folder_);
}

Result<Written> PartWriter::Run() {
  KINTSUGI_RETURN_IF_ERROR(Poll());
  KINTSUGI_RETURN_IF_ERROR(Plan());
  KINTSUGI_CHECK(planned_.size() == shards_.size() + (objects_.empty() ? 0 : 1),
                 "each shard has a file, and all objects have one");
  KINTSUGI_RETURN_IF_ERROR(MakeRoom());
  for (size_t i = 0; i < planned_.size(); ++i) {
    const uint64_t size_bytes = planned_[i].size_bytes;
    if (i < shards_.size())
      KINTSUGI_RETURN_IF_ERROR(WriteShard(shards_[i], std::move(planned_[i])));
    else
      KINTSUGI_RETURN_IF_ERROR(WriteObjects(std::move(planned_[i])));
    written_.data_bytes += size_bytes;
    ++written_.files;
  }
  KINTSUGI_RETURN_IF_ERROR(WriteSummary());
  return written_;
}

}  // namespace

Result<Written> WritePart(const StateRegistry& registry, const SaveRequest& request, const MirroredOf& mirrored_of,
                          FileSystem& files) {
  const std::string place = "save of step " + request.identity.step.ToString() + " (generation " +
                            request.identity.generation.ToString() + ") by rank " + request.writer.ToString();
  if (const Status valid = CheckRequest(request); !valid.ok()) return valid.Annotate(place);
  std::string folder;
  Status failure;
  {
    PartWriter writer(registry, request, mirrored_of, files);
    auto written = writer.Run();
    if (written.ok()) return written;
    failure = written.status();
    folder = writer.folder();
    // The writers of a save share its folder, and the first that fails removes it: the cause is to be had from that one.
    if (failure.code() == StatusCode::kNotFound && writer.made_folder())
      failure = {StatusCode::kCancelled,
                 "another writer of this save has failed and removed its folder: " + failure.message()};
  }  // files are closed: their space is free once they are removed
  if (const Status removed = files.Remove(folder); !removed.ok())
    failure = {failure.code(), failure.message() + " (and cleaning up failed: " + removed.message() + ")"};
  return failure.Annotate(place);
}

}  // namespace kintsugi::checkpoint
