#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/process/spawn.h"

namespace kintsugi {
namespace {

bool IsRegularFile(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

Status NotExecutable(const std::string& path) {
  return Status(StatusCode::kPermissionDenied,
                "program \"" + path + "\" is not executable: set its execute right, or start its interpreter with it");
}

}  // namespace

Result<std::string> FindProgram(const std::string& program, const std::string& search_path) {
  if (program.empty()) return Status(StatusCode::kInvalidArgument, "no program named: what is to be started?");
  if (program.find('/') != std::string::npos) {
    if (!IsRegularFile(program)) {
      return Status(StatusCode::kNotFound, "program \"" + program + "\" does not exist (or is no file)");
    }
    if (::access(program.c_str(), X_OK) != 0) return NotExecutable(program);
    return program;
  }
  std::string unusable;
  for (size_t at = 0; at <= search_path.size();) {
    const size_t end = std::min(search_path.find(':', at), search_path.size());
    const std::string folder = search_path.substr(at, end - at);
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (IsRegularFile(path)) {
      if (::access(path.c_str(), X_OK) == 0) return path;
      unusable = path;
    }
    at = end + 1;
  }
  if (!unusable.empty()) return NotExecutable(unusable);
  return Status(StatusCode::kNotFound, "program \"" + program + "\" was not found in PATH (" + search_path +
                                           "); to start a file of the current folder write ./" + program);
}

}  // namespace kintsugi
