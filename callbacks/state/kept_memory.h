// KeptMemory: state memory behind a descriptor that keeps its bytes alive when the process is gone.
//
// What: the launcher holds the descriptors of a rank's memory; the process that takes a dead one's place puts what those hold in
// place of its own. On the host it is a memory file, on a device an allocation of the
// driver's that is exported as a descriptor.
// Threads: one at a time.
#pragma once

#include "callbacks/state/descriptors.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

class KINTSUGI_EXPORT KeptMemory {
 public:
  virtual ~KeptMemory() = default;
  // With its descriptor, `shared_fd`.
  virtual const Memory& memory() const = 0;
  // Puts the bytes behind `file` in place of these: same address, same descriptor, same size. What was here before is gone.
  virtual Status Replace(const UniqueFd& file) = 0;
};

}  // namespace kintsugi
