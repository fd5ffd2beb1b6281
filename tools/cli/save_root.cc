// Whether checkpoints could be written where a run would write them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "runtime/base/unique_fd.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

namespace fs = std::filesystem;

Status Refused(const std::string& root, const std::string& why) {
  return {StatusCode::kUnavailable, "--save-dir '" + root + "' cannot be written: " + why +
                                        "; give a folder that this user may write to, or --save-dir '' for no saves"};
}

// One block, through to the disk: a full or a read-only one says so here.
std::string WriteProbe(const fs::path& folder) {
  const std::string file = (folder / (".kintsugi-probe-" + std::to_string(getpid()))).string();
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return std::strerror(errno);
  const std::vector<char> block(4096);
  const ssize_t written = write(fd.get(), block.data(), block.size());
  int error = written < 0 ? errno : written < static_cast<ssize_t>(block.size()) ? ENOSPC : 0;
  if (error == 0 && fsync(fd.get()) != 0) error = errno;
  unlink(file.c_str());
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace

Status CheckSaveRoot(const std::string& root) {
  std::error_code error;
  const fs::path folder = fs::absolute(root, error);
  if (error) return Refused(root, error.message());
  std::vector<fs::path> made;
  for (fs::path missing = folder; !fs::exists(missing, error) && missing.has_relative_path();
       missing = missing.parent_path())
    made.insert(made.begin(), missing);
  std::string why;
  size_t there = 0;
  while (there < made.size() && why.empty()) {
    if (mkdir(made[there].c_str(), 0777) != 0 && errno != EEXIST)
      why = made[there].string() + ": " + std::strerror(errno);
    else
      ++there;
  }
  if (why.empty()) why = fs::is_directory(folder, error) ? WriteProbe(folder) : "it is no folder";
  // Only what is still empty goes again: another run may have begun to use it.
  while (there > 0) rmdir(made[--there].c_str());
  return why.empty() ? Status::Ok() : Refused(root, why);
}

}  // namespace kintsugi::cli
