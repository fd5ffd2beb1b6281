#include "replica/save/save_handlers.h"

#include "replica/save/find.h"
#include "replica/save/load.h"
#include "replica/save/names.h"
#include "replica/save/publish.h"
#include "replica/save/write.h"

namespace kintsugi::checkpoint {
namespace {

FileSystem& FilesOf(const SaveContext& context) { return context.files ? *context.files : PosixFileSystem(); }

Status CheckContext(const SaveContext* context, const HandlerContext& call) {
  if (!context || !context->registry)
    return {StatusCode::kInvalidArgument, "the default handlers need a SaveContext with a registry"};
  if (call.directory.empty())
    return {StatusCode::kFailedPrecondition, "no checkpoint folder is set: give the run one (--save-dir)"};
  return Status::Ok();
}

// The folder to load: call.directory itself or the right one inside it.
Result<std::string> FolderToLoad(const HandlerContext& call, FileSystem& files) {
  if (StepOfFolder(BaseName(call.directory)) || ReadManifest(call.directory, files).ok()) return call.directory;
  if (call.step.value() > 0) return Join(call.directory, FolderName(call.step));
  KINTSUGI_ASSIGN_OR_RETURN(const CheckpointInfo newest, FindNewestComplete(call.directory, files));
  return newest.path;
}

// A step's folder, or a root of such.
bool IsNative(const std::string& directory, FileSystem& files) {
  if (StepOfFolder(BaseName(directory)) || ReadManifest(directory, files).ok()) return true;
  const auto steps = ListSteps(directory, files);
  return steps.ok() && !steps->empty();
}

Status WrongStep(const std::string& path, Step step, const HandlerContext& call) {
  return {StatusCode::kFailedPrecondition,
          "'" + path + "' holds step " + step.ToString() + ", this repair needs step " + call.step.ToString()};
}

Result<Loaded> LoadNative(HandlerContext& call, const SaveContext& context, FileSystem& files, LoadRequest* request) {
  KINTSUGI_ASSIGN_OR_RETURN(request->path, FolderToLoad(call, files));
  if (context.reshape) {
    request->all_fit = [&](bool fits) { return context.all_fit(call, fits); };
    request->reshape = [&](const CheckpointInfo& info, const LoadRequest& wanted) {
      return context.reshape(call, info, wanted);
    };
  }
  KINTSUGI_ASSIGN_OR_RETURN(const CheckpointInfo info, ReadManifest(request->path, files));
  request->always_reshape = context.always_reshape && info.manifest.identity.job != context.job;
  if (call.step.value() > 0 && info.step() != call.step) return WrongStep(request->path, info.step(), call);
  return Load(*context.registry, *request, files);
}

// This rank's own part: all but what others read for it.
Result<Loaded> LoadOwn(HandlerContext& call, const SaveContext& context, const LoadShare& share) {
  FileSystem& files = FilesOf(context);
  LoadRequest request;
  request.self = Rank(call.Number());
  request.deadline = call.deadline;
  request.cancel = call.cancel;
  request.world_size = call.world_size;
  request.elsewhere = &share.elsewhere;
  Loaded loaded;
  if (context.load_other && !IsNative(call.directory, files)) {
    request.path = call.directory;
    KINTSUGI_ASSIGN_OR_RETURN(loaded, context.load_other(call, request));
    // A file may know of no step: then it is the run's.
    Step& step = loaded.info.manifest.identity.step;
    if (step.value() == 0) step = call.step;
    call.loaded_step = step;
  } else {
    KINTSUGI_ASSIGN_OR_RETURN(loaded, LoadNative(call, context, files, &request));
  }
  if (call.step.value() > 0 && loaded.info.step() != call.step)
    return WrongStep(request.path, loaded.info.step(), call);
  return loaded;
}

// A checkpoint is of a world: its ranks are numbered without a gap, whoever has left the run.
std::vector<Rank> NumbersOf(const HandlerContext& call, std::vector<Rank> ranks) {
  for (Rank& rank : ranks) rank = Rank(call.NumberOf(rank));
  return ranks;
}

std::vector<SaveEntry> ByNumber(const HandlerContext& call) {
  std::vector<SaveEntry> entries = call.entries;
  for (SaveEntry& entry : entries) {
    entry.holders = NumbersOf(call, std::move(entry.holders));
    entry.objects_of = NumbersOf(call, std::move(entry.objects_of));
  }
  return entries;
}

}  // namespace

Status SaveHandler(HandlerContext& call, void* save_context) {
  const auto* context = static_cast<const SaveContext*>(save_context);
  KINTSUGI_RETURN_IF_ERROR(CheckContext(context, call));
  if (call.entries.empty()) return Status::Ok();
  SaveRequest request;
  request.root = call.directory;
  request.identity = {context->job, call.step, call.generation, call.world_size};
  request.writer = Rank(call.Number());
  request.entries = ByNumber(call);
  request.deadline = call.deadline;
  request.cancel = call.cancel;
  if (context->aliases) request.aliases = &context->aliases->all();
  const auto mirrored_of = [&](Rank rank) -> Result<std::vector<uint8_t>> {
    if (context->mirrored_of) return context->mirrored_of(call.RankOf(rank.value()), call.step);
    return Status(StatusCode::kFailedPrecondition, "nothing gives mirrored bytes: set SaveContext::mirrored_of");
  };
  const auto written = WritePart(*context->registry, request, mirrored_of, FilesOf(*context));
  if (!written.ok()) return written.status();
  call.bytes_moved = written->data_bytes;
  return Status::Ok();
}

Status RenameHandler(HandlerContext& call, void* save_context) {
  const auto* context = static_cast<const SaveContext*>(save_context);
  KINTSUGI_RETURN_IF_ERROR(CheckContext(context, call));
  PublishRequest request;
  request.root = call.directory;
  request.job = context->job;
  request.step = call.step;
  request.generation = call.generation;
  request.expected_writers = NumbersOf(call, call.partners);
  request.keep = context->keep;
  request.moves_latest = call.moves_latest;
  request.side_files = context->side_files;
  KINTSUGI_ASSIGN_OR_RETURN(const PublishedSave published, Publish(request, FilesOf(*context)));
  for (const auto* sentences : {&published.missing_states, &published.same_names, &published.left_out})
    for (const std::string& sentence : *sentences) call.remark += (call.remark.empty() ? "" : "; ") + sentence;
  if (context->after_publish) context->after_publish(call, published.info);
  return Status::Ok();
}

Status LoadHandler(HandlerContext& call, void* save_context) {
  const auto* context = static_cast<const SaveContext*>(save_context);
  KINTSUGI_RETURN_IF_ERROR(CheckContext(context, call));
  LoadShare share;
  if (context->share) {
    KINTSUGI_ASSIGN_OR_RETURN(share, context->share(call));
  }
  Result<Loaded> read = LoadOwn(call, *context, share);
  if (share.exchange) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string note, share.exchange(call, read.ok() ? Result<Step>(read->info.step())
                                                                                     : Result<Step>(read.status())));
    if (context->note && !note.empty()) context->note(call.rank, note);
  }
  KINTSUGI_ASSIGN_OR_RETURN(Loaded loaded, std::move(read));
  // A rank whose load has failed is a fault of the incident: those that wait for it here are called off.
  if (context->compare_sums) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string note, context->compare_sums(call, loaded));
    if (context->note && !note.empty()) context->note(call.rank, note);
  }
  call.step = loaded.info.step();
  call.bytes_moved = loaded.bytes;
  if (context->note && !loaded.note.empty()) context->note(call.rank, loaded.note);
  if (!context->registry->HasMirrored()) return Status::Ok();
  if (context->take_mirrored) return context->take_mirrored(call.step, std::move(loaded.mirrored));
  return context->registry->RestoreMirrored(loaded.mirrored);
}

}  // namespace kintsugi::checkpoint
