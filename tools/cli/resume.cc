// Which checkpoint a run goes on from: the newest whose every block is as it was written.
#include "replica/save/names.h"
#include "replica/save/verify.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {
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

}  // namespace

Result<CheckpointInfo> FindToResume(const std::string& root) {
  std::vector<std::string> refused;
  Result<CheckpointInfo> found = checkpoint::FindNewestComplete(root, checkpoint::PosixFileSystem(), &refused);
  for (const std::string& why : refused) Complain("--resume passes over " + why);
  if (!found.ok())
    return Status(StatusCode::kInvalidArgument, "--resume " + root + ": " + found.status().message());
  // Complete says that nothing is missing; a rank that finds a damaged block while it loads could only give up.
  const Status whole = checkpoint::Verify(found->path);
  if (whole.ok()) return found;
  PassOver(whole);
  if (std::optional<CheckpointInfo> older = WholeBefore(root, *found)) return std::move(*older);
  return Status(StatusCode::kInvalidArgument, "--resume " + root + ": no checkpoint in it is undamaged: see above");
}

}  // namespace kintsugi::cli
