#include "runtime/process/process_sweep.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>

namespace kintsugi {
namespace {

constexpr int kMaxLooks = 20;
// A process that is just replacing its program shows no environment for a moment: one empty look proves nothing.
constexpr int kEmptyLooks = 3;
constexpr timespec kBetweenLooks{0, 3'000'000};

// What the kernel writes for getdents64; libc's opendir would allocate.
struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  uint16_t length;
  uint8_t type;
  char name[1];
};

// "PID/file" below the open /proc, in a buffer of the caller's.
void FormatPath(pid_t pid, const char* file, char (&path)[64]) {
  char digits[16];
  size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + pid % 10);
    pid /= 10;
  } while (pid > 0);
  size_t at = 0;
  while (count > 0) path[at++] = digits[--count];
  path[at++] = '/';
  for (const char* c = file; *c != '\0' && at + 1 < sizeof(path); ++c) path[at++] = *c;
  path[at] = '\0';
}

int OpenBelow(int proc, pid_t pid, const char* file) {
  char path[64];
  FormatPath(pid, file, path);
  return ::openat(proc, path, O_RDONLY | O_CLOEXEC);
}

bool HasAssignment(int proc, pid_t pid, const char* assignment) {
  const int fd = OpenBelow(proc, pid, "environ");
  if (fd < 0) return false;
  // Compares entry by entry as the bytes come; `matched` is the length of the agreement, -1 once the entry differs.
  ssize_t matched = 0;
  bool found = false;
  char bytes[4096];
  for (ssize_t size; !found && (size = ::read(fd, bytes, sizeof(bytes))) > 0;) {
    for (ssize_t i = 0; i < size && !found; ++i) {
      if (bytes[i] == '\0') {
        found = matched >= 0 && assignment[matched] == '\0';
        matched = 0;
      } else if (matched >= 0) {
        matched = assignment[matched] == bytes[i] ? matched + 1 : -1;
      }
    }
  }
  ::close(fd);
  return found;
}

bool IsGuard(int proc, pid_t pid) {
  const int fd = OpenBelow(proc, pid, "comm");
  if (fd < 0) return false;
  char name[32];
  const ssize_t size = ::read(fd, name, sizeof(name));
  ::close(fd);
  const ssize_t length = static_cast<ssize_t>(sizeof(kGuardProcessName)) - 1;
  return size == length + 1 && std::memcmp(name, kGuardProcessName, static_cast<size_t>(length)) == 0;
}

pid_t PidOf(const char* name) {
  pid_t pid = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9' || pid > 100000000) return 0;
    pid = pid * 10 + (*name - '0');
  }
  return pid;
}

int LookOnce(int proc, const char* assignment) {
  int killed = 0;
  ::lseek(proc, 0, SEEK_SET);
  alignas(8) char entries[4096];
  for (long size; (size = ::syscall(SYS_getdents64, proc, entries, sizeof(entries))) > 0;) {
    for (long at = 0; at < size;) {
      const char* const entry = entries + at;
      uint16_t length = 0;
      std::memcpy(&length, entry + offsetof(DirectoryEntry, length), sizeof(length));
      at += length;
      const pid_t pid = PidOf(entry + offsetof(DirectoryEntry, name));
      if (pid <= 0 || pid == ::getpid() || !HasAssignment(proc, pid, assignment) || IsGuard(proc, pid)) continue;
      if (::kill(pid, SIGKILL) == 0) ++killed;
    }
  }
  return killed;
}

}  // namespace

int KillProcessesWithEnvironment(const char* assignment) {
  if (assignment == nullptr || assignment[0] == '\0') return 0;
  const int proc = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (proc < 0) return 0;
  int killed = 0;
  int empty = 0;
  for (int look = 0; look < kMaxLooks && empty < kEmptyLooks; ++look) {
    if (look > 0) ::nanosleep(&kBetweenLooks, nullptr);
    const int now = LookOnce(proc, assignment);
    empty = now == 0 ? empty + 1 : 0;
    killed += now;
  }
  ::close(proc);
  return killed;
}

}  // namespace kintsugi
