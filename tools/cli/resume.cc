// Which checkpoint a run goes on from: the newest whose every block is as it was written.
#include <algorithm>
#include <filesystem>

#include "replica/formats/format.h"
#include "replica/formats/verify.h"
#include "replica/save/names.h"
#include "replica/save/verify.h"
#include "runtime/launcher/lease/owner_file.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {
bool HoldsAnything(const std::string& root) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const std::string name = entry.path().filename();
    // What launchers and doctors leave there for a moment, to see whether they may write.
    if (name.rfind(".kintsugi-", 0) == 0) continue;
    if (name.rfind(OwnerFile::kName, 0) != 0 && !checkpoint::UnfinishedOfFolder(name)) return true;
  }
  return false;
}

namespace {

using checkpoint::CheckpointInfo;

void PassOver(const Status& why) { Complain("--resume passes over " + why.message()); }

// The newest whole one that `newest`'s job has left in `root` before it.
std::optional<CheckpointInfo> WholeBefore(const std::string& root, const CheckpointInfo& newest) {
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  const Result<std::vector<Step>> steps = checkpoint::ListSteps(root, files);
  if (!steps.ok()) return std::nullopt;
  for (Step step : *steps) {
    if (step >= newest.step()) continue;
    Result<CheckpointInfo> info = checkpoint::Inspect(root + "/" + checkpoint::FolderName(step), files);
    if (info.ok() && info->manifest.identity.job != newest.manifest.identity.job) continue;
    const Status whole = info.ok() ? checkpoint::Verify(info->path, files) : info.status();
    if (whole.ok()) return std::move(info).value();
    PassOver(whole);
  }
  return std::nullopt;
}

// One checkpoint itself, whole or not, and no folder of several.
bool IsStepFolder(const std::string& path) {
  std::error_code error;
  return checkpoint::StepOfFolder(checkpoint::BaseName(path)) ||
         std::filesystem::exists(checkpoint::Join(path, checkpoint::kManifestName), error);
}

// That one alone, by whoever names it.
Result<CheckpointInfo> StepToResume(const std::string& path) {
  Result<CheckpointInfo> info = checkpoint::Inspect(path, checkpoint::PosixFileSystem());
  const Status whole = info.ok() ? checkpoint::Verify(path) : info.status();
  if (whole.ok()) return info;
  return Status(StatusCode::kInvalidArgument, "--resume " + path + ": " + whole.message() + "; --resume " +
                                                  checkpoint::ParentOf(path) + " takes the newest whole one there");
}

// A folder with something in it, and nothing that could be a checkpoint of ours: what the trainer's own save handler
// wrote.
bool IsTheTrainersOwn(const std::string& root) {
  if (!HoldsAnything(root)) return false;
  const Result<std::vector<Step>> steps = checkpoint::ListSteps(root, checkpoint::PosixFileSystem());
  return steps.ok() && steps->empty() && !IsStepFolder(root);
}

// A checkpoint of another format.
struct Other {
  std::string path;
  Step step;
};

// Nothing where `root` holds none, or one that does not say its step: that is the trainer's matter.
Result<std::optional<Other>> FindOther(const std::string& root, bool takes_model_alone) {
  const auto refuse = [&](const Status& why) {
    return Status(StatusCode::kInvalidArgument, "--resume " + root + ": " + why.message());
  };
  const Result<std::string> path = formats::FollowLatest(root);
  if (!path.ok()) return refuse(path.status());
  // A run's own checkpoints come first, whatever else lies beside them.
  const std::vector<const formats::Format*> found = formats::FormatsAt(*path);
  if (found.empty() || std::any_of(found.begin(), found.end(), [](const auto* one) { return one->name() == "native"; }))
    return std::optional<Other>();
  const formats::ReadOptions read{.skip_objects = true, .checksums = true};
  const Result<formats::Catalog> catalog = formats::ReadCatalog(*path, "", read);
  if (!catalog.ok()) return refuse(catalog.status());
  if (catalog->is_model_alone() && !takes_model_alone)
    return refuse(
        {StatusCode::kInvalidArgument,
         "it is a model alone (--save-only model), for readers: it holds no optimizer's state and none of the run's "
         "objects. Name the --save-dir that it was saved beside; to begin anew from its weights, say with "
         "--resume-aoa and --resume-strict what becomes of the rest"});
  if (!catalog->step() || *catalog->step() == 0) return std::optional<Other>();
  // As of a native one: every block that has a checksum, before a rank is started.
  if (const auto whole = formats::VerifyAny(*path, "", {}); !whole.ok()) return refuse(whole.status());
  return std::optional<Other>({*path, Step(*catalog->step())});
}

}  // namespace

Result<CheckpointInfo> FindToResume(const std::string& root) {
  std::vector<std::string> refused;
  Result<CheckpointInfo> found = checkpoint::FindNewestComplete(root, checkpoint::PosixFileSystem(), &refused);
  for (const std::string& why : refused) Complain("--resume passes over " + why);
  if (!found.ok()) return Status(StatusCode::kInvalidArgument, "--resume " + root + ": " + found.status().message());
  // Complete says that nothing is missing; a rank that finds a damaged block while it loads could only give up.
  const Status whole = checkpoint::Verify(found->path);
  if (whole.ok()) return found;
  PassOver(whole);
  if (std::optional<CheckpointInfo> older = WholeBefore(root, *found)) return std::move(*older);
  return Status(StatusCode::kInvalidArgument, "--resume " + root + ": no checkpoint in it is undamaged: see above");
}

Status TakeResume(const std::string& given, bool takes_model_alone, core::Policy* policy) {
  // A shell's completion ends a folder's name with a slash.
  const std::string root = given.substr(0, std::max<size_t>(given.find_last_not_of('/') + 1, 1));
  KINTSUGI_ASSIGN_OR_RETURN(const std::optional<Other> other, FindOther(root, takes_model_alone));
  if (other) {
    policy->resume_directory = other->path;
    policy->resume_step = other->step;
    return Status::Ok();
  }
  if (IsTheTrainersOwn(root)) {
    Complain("--resume " + root + " holds no checkpoint of ours: the program's repair handler is asked to load it");
    policy->resume_directory = root;
    policy->resume_by_trainer = true;
    return Status::Ok();
  }
  KINTSUGI_ASSIGN_OR_RETURN(const CheckpointInfo found, IsStepFolder(root) ? StepToResume(root) : FindToResume(root));
  policy->resume_directory = found.path;
  policy->resume_step = found.step();
  return Status::Ok();
}

Status TakeNewest(const std::string& root, bool takes_model_alone, core::Policy* policy) {
  return HoldsAnything(root) ? TakeResume(root, takes_model_alone, policy) : Status::Ok();
}

}  // namespace kintsugi::cli
