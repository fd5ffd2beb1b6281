#include "tools/runs/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "runtime/journal/files.h"
#include "runtime/journal/options.h"
#include "runtime/process/stack_dump.h"

namespace kintsugi::runs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNewPrefix = "new-";  // until its lock is held
constexpr auto kNewFor = std::chrono::minutes(1);
// Journals of runs whose folder is our own are kept for a while: the newest so many.
constexpr size_t kJournalsKept = 8;
constexpr size_t kFileBytesMax = 1 << 16;  // of what says whose a folder is

// The lock of a folder that we or a run like us made; invalid: it has none, or its run lives.
UniqueFd TakeLock(const fs::path& folder, int flags) {
  UniqueFd fd = OpenFile(folder / kLockName, O_RDWR | flags);
  if (fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.Reset();
  return fd;
}

struct Abandoned {
  fs::file_time_type written;
  fs::path folder;
  UniqueFd lock;  // held until it is removed, or left
};

// A folder without a lock is none of ours. One with a journal tells of an incident, or of a launcher that was killed.
void RemoveAbandoned(const fs::path& base) {
  std::error_code error;
  std::vector<Abandoned> kept;
  for (const auto& entry : fs::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_new = name.rfind(kNewPrefix, 0) == 0;
    if (name.rfind(kFolderPrefix, 0) != 0 && !is_new) continue;
    // Its maker is about to lock it: only one that nobody has touched for long was left by a launcher that died.
    if (is_new && fs::file_time_type::clock::now() - fs::last_write_time(entry.path(), error) < kNewFor) continue;
    UniqueFd lock = TakeLock(entry.path(), 0);
    if (!lock.valid()) continue;
    const fs::file_time_type written = fs::last_write_time(entry.path() / journal::kFileName, error);
    if (error)
      fs::remove_all(entry.path(), error);
    else
      kept.push_back({written, entry.path(), std::move(lock)});
  }
  std::sort(kept.begin(), kept.end(), [](const Abandoned& a, const Abandoned& b) { return a.written > b.written; });
  for (size_t i = kJournalsKept; i < kept.size(); ++i) fs::remove_all(kept[i].folder, error);
}

Status CannotMake(const std::string& what, int error) {
  return {StatusCode::kUnavailable,
          "no run folder can be made: " + what + ": " + std::strerror(error) + "; give one with --run-dir"};
}

}  // namespace

std::string RunBase() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return runtime && *runtime ? std::string(runtime) + "/kintsugi" : "/tmp/kintsugi-" + std::to_string(getuid());
}

std::vector<std::string> RunBases() {
  const std::string user = std::to_string(getuid());
  std::vector<std::string> bases{RunBase()};
  for (const std::string& other : {"/run/user/" + user + "/kintsugi", "/tmp/kintsugi-" + user})
    if (std::find(bases.begin(), bases.end(), other) == bases.end()) bases.push_back(other);
  return bases;
}

bool IsOwn(const std::string& base) {
  struct stat found {};
  return lstat(base.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == getuid() &&
         !(found.st_mode & 022);
}

Result<RunFolder> RunFolder::Make() {
  const std::string base = RunBase();
  mkdir(base.c_str(), 0700);
  if (!IsOwn(base))
    return Status(StatusCode::kPermissionDenied,
                  "'" + base + "' is not a folder that only this user can write to: remove it, or give --run-dir");
  RemoveAbandoned(base);
  // Under its name only once its lock is held: one that looks for abandoned ones never sees it without.
  std::string made = base + "/" + kNewPrefix + "XXXXXX";
  if (mkdtemp(made.data()) == nullptr) return CannotMake(made, errno);
  RunFolder folder;
  folder.path_ = folder.ours_ = made;
  folder.lock_ = TakeLock(made, O_CREAT | O_EXCL);
  if (!folder.lock_.valid()) {
    const int error = errno;
    rmdir(made.c_str());
    return CannotMake(made + "/" + kLockName, error);
  }
  const std::string unique = made.substr(made.size() - 6);
  const std::string path = base + "/" + kFolderPrefix + std::to_string(getpid()) + "-" + unique;
  if (rename(made.c_str(), path.c_str()) != 0) return CannotMake(path, errno);
  folder.path_ = folder.ours_ = path;
  return folder;
}

RunFolder RunFolder::At(std::string path) {
  RunFolder folder;
  if (!path.empty())
    if (Result<RunFolder> ours = Make(); ours.ok()) folder = std::move(*ours);
  folder.path_ = std::move(path);
  return folder;
}

void RunFolder::Describe(const std::string& json) const {
  if (ours_.empty()) return;
  const std::string file = ours_ + "/" + kDescriptionName;
  std::ofstream out(file + ".new");
  out << json << '\n';
  out.close();
  std::error_code ignored;
  if (out) fs::rename(file + ".new", file, ignored);
}

UniqueFd OpenFile(const std::string& path, int flags) {
  UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat found {};
  if (fd.valid() && (fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode))) fd.Reset();
  return fd;
}

std::string ReadFile(const std::string& path) {
  const UniqueFd fd = OpenFile(path, O_RDONLY);
  std::string text(kFileBytesMax + 1, '\0');
  size_t have = 0;
  while (fd.valid() && have < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  text.resize(have > kFileBytesMax ? 0 : have);
  return text;
}

Status RemoveRun(const std::string& folder) {
  const UniqueFd lock = TakeLock(folder, 0);
  if (!lock.valid())
    return {StatusCode::kFailedPrecondition,
            "'" + folder + "' is the folder of a run that lives, or of none: kintsugi stop --run " + folder + " first"};
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) return {StatusCode::kUnavailable, "'" + folder + "' cannot be removed: " + error.message()};
  return Status::Ok();
}

RunFolder::RunFolder(RunFolder&& other) noexcept = default;
RunFolder& RunFolder::operator=(RunFolder&& other) noexcept = default;

RunFolder::~RunFolder() { Leave("", false); }

void RunFolder::Leave(const std::string& journal, bool worth_keeping) {
  if (!lock_.valid()) return;
  std::error_code ignored;
  // Each leader's journal, whichever of them this launcher was.
  if (!worth_keeping || journal != ours_ + "/" + journal::kFileName || journal::FilesIn(ours_).empty()) {
    fs::remove_all(ours_, ignored);
  } else {
    for (const auto& entry : fs::directory_iterator(ours_, ignored))
      if (const auto name = entry.path().filename(); journal::TermOfName(name.string()) == 0 && name != kLockName &&
                                                     name != kDescriptionName &&
                                                     name.string().rfind(kStacksFilePrefix, 0) != 0)
        fs::remove_all(entry.path(), ignored);
  }
  lock_.Reset();
}

}  // namespace kintsugi::runs
