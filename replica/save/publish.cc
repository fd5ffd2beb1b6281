#include "replica/save/publish.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "replica/save/missing_states.h"
#include "replica/save/names.h"
#include "replica/save/rotate.h"
#include "replica/save/same_names.h"
#include "replica/save/side_files.h"
#include "replica/save/verify.h"
#include "runtime/base/check.h"
#include "runtime/base/generation_part.h"

namespace kintsugi::checkpoint {
namespace {

class Publisher {
 public:
  Publisher(const PublishRequest& request, FileSystem& files)
      : request_(request),
        files_(files),
        unfinished_(Join(request.root, UnfinishedFolderName(request.step, request.generation, request.job))),
        final_(Join(request.root, FolderName(request.step))) {}

  Result<PublishedSave> Run();

 private:
  Result<Manifest> Collect();
  Status CheckWriters(const std::map<Rank, Part>& parts) const;
  Status CheckNotSuperseded(Step step) const;
  // That this very save is in place already.
  bool IsDone() const;
  bool IsDoneByAnotherPart() const;
  Status Place();
  Status MoveIntoPlace();
  Status ReplaceFinal();
  Status MoveLatest();

  const PublishRequest& request_;
  FileSystem& files_;
  const std::string unfinished_;
  const std::string final_;
  std::vector<std::string> missing_states_, same_names_, left_out_;
};

Status Publisher::CheckWriters(const std::map<Rank, Part>& parts) const {
  std::vector<Rank> missing;
  for (Rank writer : request_.expected_writers)
    if (!parts.count(writer)) missing.push_back(writer);
  if (missing.empty() && !parts.empty()) return Status::Ok();
  return {StatusCode::kFailedPrecondition, "'" + unfinished_ + "' lacks the parts of ranks " +
                                               (missing.empty() ? "that should have written" : DescribeRanks(missing)) +
                                               ": did their save end well?"};
}

std::vector<std::string> KeysOf(const std::map<Rank, Part>& parts) {
  std::set<std::string> keys;
  for (const auto& [writer, part] : parts)
    for (const StoredShard& shard : part.shards)
      for (const StoredTensor& stored : shard.tensors) keys.insert(stored.tensor.key);
  return {keys.begin(), keys.end()};
}

// Reads every part in the unfinished folder and lists them, if together they are a whole checkpoint.
Result<Manifest> Publisher::Collect() {
  KINTSUGI_ASSIGN_OR_RETURN(const auto names, files_.List(unfinished_));
  std::map<Rank, Part> parts;
  CheckpointInfo pending;
  pending.path = unfinished_;
  std::map<Rank, ListedPart> listed;
  for (const std::string& name : names) {
    if (!name.starts_with("part-") || !name.ends_with(".json")) continue;
    const std::string path = Join(unfinished_, name);
    KINTSUGI_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(files_, path, kPartBytesMax));
    KINTSUGI_ASSIGN_OR_RETURN(Part part, DecodePart(text, path));
    if (PartName(part.writer) != name)
      return Status(StatusCode::kDataLoss, "'" + path + "' is the part of rank " + part.writer.ToString());
    listed[part.writer] = List(part, text);
    parts[part.writer] = std::move(part);
  }
  KINTSUGI_RETURN_IF_ERROR(CheckWriters(parts));
  Manifest& manifest = pending.manifest;
  manifest.identity = parts.begin()->second.identity;
  manifest.moves_latest = request_.moves_latest;
  if (manifest.identity.step != request_.step || manifest.identity.generation != request_.generation ||
      manifest.identity.job != request_.job)
    return Status(StatusCode::kDataLoss, "'" + unfinished_ + "' holds " + Describe(manifest.identity));
  std::vector<const Part*> all;
  for (const auto& [writer, part] : parts) {
    all.push_back(&part);
    manifest.parts.push_back(listed[writer]);
  }
  KINTSUGI_CHECK(listed.size() == parts.size(), "each part that was read is listed");
  manifest.tensor_sums = TensorSumsOf(all);
  missing_states_ = MissingStates(KeysOf(parts));
  same_names_ = SameNames(all);
  KINTSUGI_RETURN_IF_ERROR(CheckComplete(manifest.identity, all));
  // Once more through the reader's eyes: sizes of the data files included.
  for (const ListedPart& part : manifest.parts) {
    const auto readable = ReadPart(pending, part, files_);
    if (!readable.ok()) return readable.status();
  }
  return manifest;
}

// Fencing: a rank of an older generation that was cut off must not move `latest` back.
Status Publisher::CheckNotSuperseded(Step step) const {
  const auto other = ReadManifest(Join(request_.root, FolderName(step)), files_);
  if (!other.ok()) return Status::Ok();
  const SaveIdentity& newer = other->manifest.identity;
  if (newer.job != request_.job || newer.generation <= request_.generation || newer.step < request_.step)
    return Status::Ok();
  if (!other->manifest.moves_latest) return Status::Ok();  // of a part, which has left
  return {StatusCode::kCancelled, "a newer generation has published " + Describe(newer)};
}

bool Publisher::IsDone() const {
  const auto done = Inspect(final_, files_);
  return done.ok() && done->manifest.identity.generation == request_.generation &&
         done->manifest.identity.job == request_.job;
}

// Parts that save one step save one state: the first one to publish it has done it for all.
bool Publisher::IsDoneByAnotherPart() const {
  if (request_.moves_latest) return false;
  const auto done = Inspect(final_, files_);
  if (!done.ok() || done->step() != request_.step || done->manifest.identity.job != request_.job) return false;
  const uint64_t part = PartOf(done->manifest.identity.generation);
  return part != 0 && part != PartOf(request_.generation);
}

// A checkpoint of this step is there already: a periodic one before the incident, or one that is damaged.
Status Publisher::ReplaceFinal() {
  KINTSUGI_CHECK(unfinished_ != final_, "a checkpoint is not put in its own place");
  const Status exchanged = files_.Exchange(unfinished_, final_);
  if (exchanged.ok()) return files_.SyncFolder(request_.root);
  if (exchanged.code() != StatusCode::kFailedPrecondition) return exchanged;
  // Without an exchange there would be a moment with neither: what is whole stays, what is damaged makes room.
  if (Verify(final_, files_).ok()) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(files_.Remove(final_));
  KINTSUGI_RETURN_IF_ERROR(files_.Rename(unfinished_, final_));
  return files_.SyncFolder(request_.root);
}

Status Publisher::MoveIntoPlace() {
  const auto there = files_.List(final_);
  if (there.ok()) {
    KINTSUGI_RETURN_IF_ERROR(ReplaceFinal());
    // Either the replaced checkpoint or the one that was not needed.
    return files_.Remove(unfinished_);
  }
  if (there.status().code() != StatusCode::kNotFound) return there.status();
  KINTSUGI_RETURN_IF_ERROR(files_.Rename(unfinished_, final_));
  return files_.SyncFolder(request_.root);
}

Status Publisher::MoveLatest() {
  if (!request_.moves_latest) return Status::Ok();
  const auto latest = ReadLatest(request_.root, files_);
  if (latest.ok() && *latest == request_.step) return Status::Ok();
  const std::string aside = Join(request_.root, std::string(kLatestName) + ".tmp-g" + request_.generation.ToString());
  KINTSUGI_RETURN_IF_ERROR(WriteSmallFile(files_, aside, FolderName(request_.step) + "\n"));
  KINTSUGI_RETURN_IF_ERROR(files_.Rename(aside, Join(request_.root, kLatestName)));
  return files_.SyncFolder(request_.root);
}

Status Publisher::Place() {
  KINTSUGI_ASSIGN_OR_RETURN(Manifest manifest, Collect());
  KINTSUGI_RETURN_IF_ERROR(CheckNotSuperseded(request_.step));
  if (const auto latest = ReadLatest(request_.root, files_); latest.ok())
    KINTSUGI_RETURN_IF_ERROR(CheckNotSuperseded(*latest));
  KINTSUGI_ASSIGN_OR_RETURN(SideFilesCopied copied, CopySideFiles(request_.side_files, unfinished_, files_));
  manifest.side_files = std::move(copied.files);
  left_out_ = std::move(copied.left_out);
  KINTSUGI_RETURN_IF_ERROR(WriteSmallFile(files_, Join(unfinished_, kManifestName), Encode(manifest)));
  KINTSUGI_RETURN_IF_ERROR(files_.SyncFolder(unfinished_));
  return MoveIntoPlace();
}

Result<PublishedSave> Publisher::Run() {
  if (!IsDone()) KINTSUGI_RETURN_IF_ERROR(IsDoneByAnotherPart() ? files_.Remove(unfinished_) : Place());
  PublishedSave published;
  published.missing_states = std::move(missing_states_);
  published.same_names = std::move(same_names_);
  published.left_out = std::move(left_out_);
  KINTSUGI_ASSIGN_OR_RETURN(published.info, Inspect(final_, files_));
  if (!request_.moves_latest) return published;
  KINTSUGI_RETURN_IF_ERROR(MoveLatest());
  Rotate(request_.root, request_.job, request_.step, request_.generation, request_.keep, files_, &published);
  return published;
}

}  // namespace

Result<PublishedSave> Publish(const PublishRequest& request, FileSystem& files) {
  const std::string place = "publishing step " + request.step.ToString() + " (generation " +
                            request.generation.ToString() + ") in '" + request.root + "'";
  auto published = Publisher(request, files).Run();
  if (!published.ok()) return published.status().Annotate(place);
  return published;
}

}  // namespace kintsugi::checkpoint
