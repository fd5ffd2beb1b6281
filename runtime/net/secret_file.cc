#include "runtime/net/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/file_follower.h"

namespace kintsugi::net {
namespace {

constexpr const char* kHowTo =
    "; make one with: (umask 077; head -c 32 /dev/urandom > FILE), and bring it to every node";

Status Wrong(const std::string& file, const std::string& why) {
  return {StatusCode::kInvalidArgument, "'" + file + "'" + why};
}

Result<std::shared_ptr<Secret>> Read(const std::string& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found {};
  if (!fd.valid() || ::fstat(fd.get(), &found) != 0)
    return Wrong(file, std::string(": ") + std::strerror(errno) + kHowTo);
  // What root owns may be given to a group, as volumes of Kubernetes are.
  const mode_t forbidden = found.st_uid == 0 ? 027 : 077;
  if ((found.st_mode & forbidden) != 0)
    return Wrong(file, " can be read by others than its owner: chmod 600 '" + file + "'");
  Result<std::shared_ptr<Secret>> secret = Secret::FromFile(fd.get(), static_cast<uint64_t>(found.st_size));
  if (!secret.ok()) return Wrong(file, ": " + secret.status().message() + kHowTo);
  return secret;
}

}  // namespace

struct SecretFile::State {
  State(std::string name, std::vector<FileMark> known, std::shared_ptr<Secret> read)
      : file(std::move(name)), marks(std::move(known)), secret(std::move(read)), shown(secret) {}

  // On the follower's thread. A file that is being replaced is looked at again; told is what stays wrong.
  bool Reload() {
    const Result<std::shared_ptr<Secret>> next = Read(file);
    const MutexLock lock(mutex);
    if (!next.ok()) {
      if (++failures == kLooksBeforeTold) change = next.status();
      return false;
    }
    failures = 0;
    secret->TakeFrom(**next);
    change = Status::Ok();
    return true;
  }

  static constexpr int kLooksBeforeTold = 5;
  const std::string file;
  const std::vector<FileMark> marks;
  const std::shared_ptr<Secret> secret;
  const std::shared_ptr<const Secret> shown;
  Mutex mutex;
  int failures KINTSUGI_GUARDED_BY(mutex) = 0;
  std::optional<Status> change KINTSUGI_GUARDED_BY(mutex);
  std::optional<FileFollower> follower;
};

Result<std::shared_ptr<SecretFile>> SecretFile::Open(const std::string& file) {
  std::vector<FileMark> marks = MarksOf({file});
  KINTSUGI_ASSIGN_OR_RETURN(std::shared_ptr<Secret> secret, Read(file));
  return std::shared_ptr<SecretFile>(
      new SecretFile(std::make_shared<State>(file, std::move(marks), std::move(secret))));
}

SecretFile::SecretFile(std::shared_ptr<State> state) : state_(std::move(state)) {}

SecretFile::~SecretFile() { state_->follower.reset(); }

const std::shared_ptr<const Secret>& SecretFile::secret() const { return state_->shown; }

void SecretFile::Follow() {
  if (state_->follower) return;
  // It may outlive the object where a disk hangs.
  state_->follower.emplace(std::vector<std::string>{state_->file}, state_->marks,
                           [weak = std::weak_ptr<State>(state_)] {
                             const auto state = weak.lock();
                             return !state || state->Reload();
                           });
}

std::optional<Status> SecretFile::TakeChange() {
  const MutexLock lock(state_->mutex);
  return std::exchange(state_->change, std::nullopt);
}

}  // namespace kintsugi::net
