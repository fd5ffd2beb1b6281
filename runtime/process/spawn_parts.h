// What starting a process by exec and by fork have in common. Internal.
//
// Threads: any.
// Errors: as ForkExec.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/process_spec.h"

namespace kintsugi {

inline constexpr int kFirstPassedFd = 3;
inline constexpr char kGo = 'g';  // the new process waits for it: until then nobody watches over it

Status CheckSpec(const ProcessSpec& spec);
// The whole of it: this process's, changed as `spec` says, and the numbers of the passed descriptors.
std::map<std::string, std::string> ChildEnvironment(const ProcessSpec& spec);
// Its read end does not block.
Result<std::pair<UniqueFd, UniqueFd>> MakeOutputPipe();
Status SystemError(const std::string& what, int error);

}  // namespace kintsugi
