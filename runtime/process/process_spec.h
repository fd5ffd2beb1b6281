// ProcessSpec: what to start and how. The child sees only what is named here: its three standard streams, the passed
// descriptors and the environment; no other descriptor, signal mask or handler of the launcher leaks into it.
//
// Ownership: passed descriptors stay the caller's; the child gets copies.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace kintsugi {

enum class OutputStream { kStdout, kStderr };

struct PassedFd {
  int fd = -1;           // in this process
  std::string variable;  // environment variable that tells the child its number there; empty: not told
};

struct ProcessSpec {
  std::string program;            // with a slash: a path; without: looked up in the child's PATH
  std::vector<std::string> args;  // without the program's own name
  std::map<std::string, std::string> environment;  // added to this process's environment, or replacing parts of it
  std::vector<std::string> unset_environment;      // removed first
  std::vector<PassedFd> passed_fds;                // numbered 3, 4, ... in the child, in this order
  // The child leads a process group of its own, which ends with it. Off: it stays in the launcher's group, gets the
  // terminal's Ctrl-C itself, and its descendants are its own affair.
  bool own_process_group = true;
};

}  // namespace kintsugi
