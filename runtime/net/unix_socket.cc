#include "runtime/net/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace kintsugi::net {
namespace {

constexpr int kBacklog = 32;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// An address has room for 107 characters; through the folder's descriptor any path fits.
sockaddr_un AddressOf(const UnixSocketPath& place) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(place.folder.get()) + "/" + place.name;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

UniqueFd MakeSocket() { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

int Connect(int fd, const UnixSocketPath& place) {
  const sockaddr_un address = AddressOf(place);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

Status Failure(StatusCode code, const UnixSocketPath& place, const std::string& text) {
  return {code, place.path + ": " + text};
}

class FolderLock {
 public:
  explicit FolderLock(int folder) : folder_(folder) { ::flock(folder_, LOCK_EX); }
  ~FolderLock() { ::flock(folder_, LOCK_UN); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  const int folder_;
};

Status RemoveStale(const UnixSocketPath& place) {
  struct stat file {};
  if (::fstatat(place.folder.get(), place.name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) return Status::Ok();
  if (!S_ISSOCK(file.st_mode) || file.st_uid != ::geteuid()) {
    return Failure(StatusCode::kInvalidArgument, place,
                   "exists and is not a control socket of this user: move it away or choose another run folder");
  }
  UniqueFd probe = MakeSocket();
  const int error = probe.valid() ? Connect(probe.get(), place) : errno;
  if (error == ECONNREFUSED) {
    ::unlinkat(place.folder.get(), place.name.c_str(), 0);
    return Status::Ok();
  }
  if (error == ENOENT) return Status::Ok();
  return Failure(StatusCode::kUnavailable, place,
                 "a live run has this control socket: end it or choose another run folder");
}

}  // namespace

Status MakeFolder(const std::string& path) {
  const std::string folder = FolderOf(path);
  if (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return Status::Ok();
  return {errno == EACCES || errno == EPERM ? StatusCode::kPermissionDenied : StatusCode::kInvalidArgument,
          "cannot make the run folder " + folder + ": " + std::strerror(errno)};
}

Result<UnixSocketPath> OpenUnixSocketPath(const std::string& path) {
  const std::string folder = FolderOf(path);
  const size_t slash = path.rfind('/');
  UnixSocketPath place{path, UniqueFd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
                       slash == std::string::npos ? path : path.substr(slash + 1)};
  if (place.name.empty() || place.name.size() > 64) {
    return Status(StatusCode::kInvalidArgument, path + ": a control socket's name has 1 to 64 characters");
  }
  if (!place.folder.valid()) {
    return Status(errno == EACCES ? StatusCode::kPermissionDenied : StatusCode::kNotFound,
                  path + ": no run here: folder " + folder + ": " + std::strerror(errno));
  }
  return place;
}

Status CheckFolder(const struct stat& folder, uid_t user, const std::string& path) {
  if (folder.st_uid != user) {
    return {StatusCode::kPermissionDenied, "the folder of " + path + " belongs to user " +
                                               std::to_string(folder.st_uid) + ", this is user " +
                                               std::to_string(user) + ": choose a run folder of your own"};
  }
  if ((folder.st_mode & 0077) != 0) {
    return {StatusCode::kPermissionDenied,
            "the folder of " + path + " is open to other users: chmod 700 it or choose another run folder"};
  }
  return Status::Ok();
}

Status CheckCaller(uid_t caller, uid_t owner) {
  if (caller == owner) return Status::Ok();
  return {StatusCode::kPermissionDenied, "this run belongs to user " + std::to_string(owner) + ", the caller is user " +
                                             std::to_string(caller) + ": ask as the run's owner"};
}

Result<UniqueFd> ListenUnix(const UnixSocketPath& place) {
  struct stat folder {};
  if (::fstat(place.folder.get(), &folder) != 0)
    return Failure(StatusCode::kInvalidArgument, place, std::strerror(errno));
  KINTSUGI_RETURN_IF_ERROR(CheckFolder(folder, ::geteuid(), place.path));
  // Two servers that start at once: the second must not take the first's file, bound but not yet listening, for a stale
  // one.
  const FolderLock lock(place.folder.get());
  KINTSUGI_RETURN_IF_ERROR(RemoveStale(place));
  UniqueFd fd = MakeSocket();
  const sockaddr_un address = AddressOf(place);
  // The file gets the socket's mode (less the umask) at bind, so there is no moment at which others may open it.
  if (!fd.valid() || ::fchmod(fd.get(), 0600) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::fchmodat(place.folder.get(), place.name.c_str(), 0600, 0) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return Failure(errno == EADDRINUSE ? StatusCode::kUnavailable : StatusCode::kResourceExhausted, place,
                   std::string("cannot listen: ") + std::strerror(errno));
  }
  return fd;
}

Result<UniqueFd> ConnectUnix(const UnixSocketPath& place) {
  UniqueFd fd = MakeSocket();
  const int error = fd.valid() ? Connect(fd.get(), place) : errno;
  switch (error) {
    case 0: return fd;
    case ENOENT:
      return Failure(StatusCode::kNotFound, place, "no such run: it has ended, or the folder is not a run's");
    case ECONNREFUSED: return Failure(StatusCode::kNotFound, place, "the run that had this socket has ended");
    case EACCES:
    case EPERM:
      return Failure(StatusCode::kPermissionDenied, place, "the run belongs to another user: ask as its owner");
    case EAGAIN:
      return Failure(StatusCode::kUnavailable, place, "the run has too many callers at once");
    default: return Failure(StatusCode::kCommFailure, place, std::strerror(error));
  }
}

uid_t PeerUser(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return static_cast<uid_t>(-1);
  return credentials.uid;
}

}  // namespace kintsugi::net
