#include <inner_group.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace

void GlooInner::Cut() {
  for (const GroupConnection& connection : connections_) Shut(connection);
}

}  // namespace kintsugi::torch_door
