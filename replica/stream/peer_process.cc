#include "replica/stream/peer_process.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "kernels/host_checksum.h"

namespace kintsugi {

HostId ThisHost() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(boot, id);
  // Process ids mean something within one pid namespace, StartTicks within one of time.
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/time"}) {
    struct stat found {};
    stat(space, &found);
    id += "/" + std::to_string(found.st_dev) + "/" + std::to_string(found.st_ino);
  }
  id += "/" + std::to_string(geteuid());
  const uint64_t first = HashBytes(id.data(), id.size());
  id += "/second";
  return {first, HashBytes(id.data(), id.size())};
}

uint64_t StartTicks(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  // The command's name may hold anything; the fields after its closing bracket are numbers.
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return 0;
  std::istringstream fields(text.substr(bracket + 1));
  std::string field;
  for (int number = 3; number < 22; ++number) fields >> field;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

Result<PeerProcess> PeerProcess::Watch(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0)
    return Status(StatusCode::kFailedPrecondition,
                  "cannot watch process " + std::to_string(pid) + ": " + std::strerror(errno));
  return PeerProcess(pid, fd);
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept : pid_(other.pid_), pidfd_(std::exchange(other.pidfd_, -1)) {}

PeerProcess& PeerProcess::operator=(PeerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

PeerProcess::~PeerProcess() {
  if (pidfd_ >= 0) close(pidfd_);
}

bool PeerProcess::alive() const {
  pollfd wait{.fd = pidfd_, .events = POLLIN, .revents = 0};
  return poll(&wait, 1, 0) == 0;
}

}  // namespace kintsugi
