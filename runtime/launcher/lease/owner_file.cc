#include "runtime/launcher/lease/owner_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "runtime/base/host_name.h"
#include "runtime/base/json.h"
#include "runtime/base/unique_fd.h"
#include "runtime/base/write_all.h"

namespace kintsugi {
namespace {

using nlohmann::json;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Names the processes among which a pid and its begin mean something: one boot of one kernel, one namespace of both.
std::string Realm() {
  std::string realm = FirstLine("/proc/sys/kernel/random/boot_id");
  for (const char* kind : {"/proc/self/ns/pid", "/proc/self/ns/time"}) {
    char space[64] = "";
    const ssize_t size = readlink(kind, space, sizeof space - 1);
    realm += " " + std::string(space, size > 0 ? static_cast<size_t>(size) : 0);
  }
  return realm;
}

// When the process began, in ticks since the boot: a number that was given away again begins another time.
std::string BegunAt(int pid) {
  const std::string stat = FirstLine("/proc/" + std::to_string(pid) + "/stat");
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string field;
  for (int i = 0; i < 20 && fields >> field;) ++i;
  return fields ? field : "";
}

struct Found {
  std::string owner, host, realm, begun;
  int pid = 0;
  int64_t touched_ns = 0;
};

int64_t TimeOf(const struct stat& file) { return file.st_mtim.tv_sec * 1'000'000'000ll + file.st_mtim.tv_nsec; }

// Nothing: there is none. One that cannot be read belongs to somebody unknown.
std::optional<Found> Read(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return std::nullopt;
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Found found{"somebody", "", "", "", 0, TimeOf(file)};
  const auto document = JsonDocument::Parse(text);
  if (!document.ok()) return found;
  const JsonField root = document->Root();
  for (const auto& [name, into] : {std::pair("owner", &found.owner), std::pair("host", &found.host),
                                   std::pair("realm", &found.realm), std::pair("begun", &found.begun)})
    (void)root.ReadIfAny(name, into);
  (void)root.ReadIfAny("pid", &found.pid);
  return found;
}

std::string NameOf(const Found& found) {
  return "run '" + found.owner + "' (process " + std::to_string(found.pid) + " on host '" + found.host + "')";
}

Status Failed(const std::string& what, int error) {
  return {error == ENOENT ? StatusCode::kNotFound : StatusCode::kUnavailable, what + ": " + std::strerror(error)};
}

}  // namespace

OwnerFile::OwnerFile(std::string root, std::string owner, int pid)
    : root_(std::move(root)), owner_(std::move(owner)), path_(root_ + "/" + kName), pid_(pid) {}

std::string OwnerFile::ToText() const {
  const json text{{"owner", owner_}, {"host", HostName()}, {"pid", pid_}, {"realm", Realm()}, {"begun", BegunAt(pid_)}};
  return text.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Status OwnerFile::Write() {
  std::string aside = path_ + ".XXXXXX";
  const UniqueFd fd(mkostemp(aside.data(), O_CLOEXEC));
  int error = fd.valid() ? WriteAll(fd.get(), ToText()) : errno;
  if (error == 0 && rename(aside.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) return Status::Ok();
  const Status failed = Failed("'" + path_ + "' cannot be written", error);
  if (fd.valid()) unlink(aside.c_str());
  return failed;
}

Result<OwnerFile::Answer> OwnerFile::TryTake() {
  constexpr int kTries = 100;
  // Another run that ends without a checkpoint may take the root along between any two of our calls.
  for (int tries = 1;; ++tries) {
    Result<Answer> answer = TakeOnce();
    if (answer.ok() || answer.status().code() != StatusCode::kNotFound) return answer;
    if (tries == kTries) return Status{StatusCode::kUnavailable, answer.status().message()};
  }
}

Result<OwnerFile::Answer> OwnerFile::TakeOnce() {
  std::error_code error;
  made_root_ = std::filesystem::create_directories(root_, error) || made_root_;
  if (error) return Failed("'" + root_ + "' cannot be made", error.value());
  // Two that find it free at once. Where the file system knows no such lock, the second one's Touch finds out.
  const UniqueFd folder(open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return Failed("'" + root_ + "' cannot be read", errno);
  (void)flock(folder.get(), LOCK_EX);
  const std::optional<Found> found = Read(path_);
  if (found && found->owner != owner_) {
    const bool known = found->pid > 0 && found->realm == Realm();
    const std::string begun = known ? BegunAt(found->pid) : "";
    if (known && !begun.empty() && begun == found->begun) return Answer{Claim::kAnothers, NameOf(*found), 0};
    // Whether one that we cannot see still lives shows in the file's time. Compared with the disk's own clock.
    std::string probe = path_ + ".XXXXXX";
    const UniqueFd now(mkostemp(probe.data(), O_CLOEXEC));
    struct stat file {};
    const bool told = now.valid() && fstat(now.get(), &file) == 0;
    const int failed = errno;
    if (now.valid()) unlink(probe.c_str());
    if (!told) return Failed("'" + root_ + "' cannot be written", failed);
    if (!known && TimeOf(file) - found->touched_ns < kFreeAfter.count())
      return Answer{Claim::kPerhaps, NameOf(*found), found->touched_ns};
  }
  KINTSUGI_RETURN_IF_ERROR(Write());
  return Answer{};
}

Result<OwnerFile::Answer> OwnerFile::Touch() {
  const std::optional<Found> found = Read(path_);
  if (found && found->owner != owner_) return Answer{Claim::kAnothers, NameOf(*found), 0};
  // A leader that takes over finds its predecessor's process there.
  if (found && found->pid == pid_ && found->realm == Realm() && utimensat(AT_FDCWD, path_.c_str(), nullptr, 0) == 0)
    return Answer{};
  KINTSUGI_RETURN_IF_ERROR(Write());
  return Answer{};
}

void OwnerFile::ClearAway() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("step_", 0) == 0 && name.find(".tmp-g") != std::string::npos)
      std::filesystem::remove_all(entry.path(), error);
  }
}

void OwnerFile::GiveBack() {
  const std::optional<Found> found = Read(path_);
  if (found && found->owner == owner_) unlink(path_.c_str());
  if (made_root_) rmdir(root_.c_str());
}

}  // namespace kintsugi
