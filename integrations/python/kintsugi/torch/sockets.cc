#include <dirent.h>
#include <netinet/in.h>
#include <sockets.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

namespace kintsugi::torch_door {
namespace {

std::optional<int> PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return std::nullopt;
}

// Nothing: it is no TCP socket that listens or is connected.
std::optional<OpenSockets::Socket> Describe(int descriptor, uint64_t inode) {
  int type = 0;
  int listens = 0;
  socklen_t size = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return std::nullopt;
  size = sizeof listens;
  if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) return std::nullopt;
  sockaddr_storage own{};
  sockaddr_storage peer{};
  size = sizeof own;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) != 0) return std::nullopt;
  const auto port = PortOf(own);
  if (!port || listens != 0)
    return port ? std::optional(OpenSockets::Socket(descriptor, inode, *port, 0)) : std::nullopt;
  size = sizeof peer;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return std::nullopt;
  return OpenSockets::Socket(descriptor, inode, *port, PortOf(peer).value_or(0));
}

}  // namespace

std::vector<OpenSockets::Socket> OpenSockets::Opened() {
  std::vector<Socket> opened;
  std::set<std::pair<int, uint64_t>> found;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return opened;
  while (const dirent* entry = readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);  // "." and "..": 0, which is looked at twice more
    struct stat status {};
    if (fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    const std::pair<int, uint64_t> socket(descriptor, status.st_ino);
    if (found.insert(socket).second && known_.count(socket) == 0)
      if (auto described = Describe(descriptor, status.st_ino)) opened.push_back(*described);
  }
  closedir(folder);
  known_ = std::move(found);
  return opened;
}

}  // namespace kintsugi::torch_door
