#include <inner_group.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

namespace kintsugi::torch_door {
namespace {

// On a duplicate, whose inode is looked at: the number may belong to another file by now.
void Shut(const GroupConnection& connection) {
  const int copy = dup(connection.descriptor);
  if (copy < 0) return;
  struct stat found {};
  if (fstat(copy, &found) == 0 && S_ISSOCK(found.st_mode) && found.st_ino == connection.inode)
    ::shutdown(copy, SHUT_RDWR);
  close(copy);
}

std::atomic<bool> is_capturing{false};

}  // namespace

void SetCapturing(bool capturing) { is_capturing = capturing; }

void CheckNotCapturing() {
  TORCH_CHECK(
      !is_capturing,
      "is refused while a CUDA graph is captured: it would be replayed on a communicator that a repair has taken "
      "away. Capture what stands between collectives");
}

void GlooInner::Cut() {
  for (const GroupConnection& connection : connections_) Shut(connection);
}

}  // namespace kintsugi::torch_door
