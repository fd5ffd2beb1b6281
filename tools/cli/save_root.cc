// Whether checkpoints could be written where a run would write them.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"
#include "runtime/base/write_all.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

namespace fs = std::filesystem;

Status Refused(const std::string& root, const std::string& why) {
  return {StatusCode::kUnavailable, "--save-dir '" + root + "' cannot be written: " + why +
                                        "; give a folder that this user may write to, or --save-dir '' for no saves"};
}

// One block, through to the disk: a full or a read-only one says so here. Gives an errno, or 0.
int WriteProbe(const fs::path& folder) {
  const std::string file = (folder / (".kintsugi-probe-" + std::to_string(getpid()))).string();
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return errno;
  int error = WriteAll(fd.get(), std::string(4096, '\0'));
  if (error == 0 && fsync(fd.get()) != 0) error = errno;
  unlink(file.c_str());
  return error;
}

// The folder itself, or the nearest one above it that is there: a user who may write a file into that one may also make
// what is missing. Nothing is made under the real name, since launchers that start together would take it from each
// other.
Result<fs::path> NearestFolder(const std::string& root) {
  std::error_code error;
  for (fs::path at = fs::absolute(root, error); !error; at = at.parent_path()) {
    if (at.filename().empty() && at.has_relative_path()) continue;  // "checkpoints/" is "checkpoints"
    const fs::file_status itself = fs::symlink_status(at, error);
    if (itself.type() == fs::file_type::not_found) {
      error.clear();
      continue;
    }
    if (error) break;
    if (fs::is_directory(at, error)) return at;
    return Refused(root,
                   at.string() + (fs::is_symlink(itself) ? " is a link that leads to no folder" : " is no folder"));
  }
  return Refused(root, error.message());
}

}  // namespace

Status CheckSaveRoot(const std::string& root) {
  constexpr int kTries = 100;
  for (int tries = 1;; ++tries) {
    const Result<fs::path> folder = NearestFolder(root);
    if (!folder.ok()) return folder.status();
    const int error = WriteProbe(*folder);
    if (error == 0) return Status::Ok();
    // A run that ends without a checkpoint takes its folder along, between our look and our probe too.
    if (error == ENOENT && tries < kTries) continue;
    return Refused(root, folder->string() + ": " + std::strerror(error));
  }
}

}  // namespace kintsugi::cli
