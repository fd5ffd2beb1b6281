// Unix-domain sockets at the system-call level: names of any length, rights, the peer's user. Part of ControlSocket.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi::net {

struct UnixSocketPath {
  std::string path;  // as given
  UniqueFd folder;   // the socket is reached through it, so the folder that was checked is the one that is used
  std::string name;
};

// Opens the folder of `path`.
// Errors: kNotFound, kInvalidArgument.
Result<UnixSocketPath> OpenUnixSocketPath(const std::string& path);
// Makes the path's folder with mode 0700 unless it is there.
Status MakeFolder(const std::string& path);
// Ok if the folder is `user`'s own and nobody else may enter it.
Status CheckFolder(const struct stat& folder, uid_t user, const std::string& path);
// Ok if the caller is the owner.
Status CheckCaller(uid_t caller, uid_t owner);

// Listens at the place with mode 0600. A socket file that nobody listens to any more is removed first.
Result<UniqueFd> ListenUnix(const UnixSocketPath& place);
// Errors: kNotFound, kPermissionDenied, kUnavailable (its backlog is full).
Result<UniqueFd> ConnectUnix(const UnixSocketPath& place);
// The user at the other end; -1 if the kernel does not say.
uid_t PeerUser(int fd);

}  // namespace kintsugi::net
