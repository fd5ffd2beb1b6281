// NcclCommunicators: some communicators of one device that are made together and aborted together.
//
// What: every communicator is non-blocking. Init makes all of them in one group under a deadline of our own, since a
// missing rank would be waited for for ever. A call on a communicator holds its lock, which Abort takes: no thread is
// inside NCCL on it then. All aborts go into one group, else the first would wait for the other's stuck kernel.
// Threads: one thread at a time calls on one communicator; Abort and aborted() from any. Abort returns at once: a
// thread of its own carries it out, because a wedged device may hold it for ever. The destructor waits for that at most
// kNcclAbortLimit; after that it leaves communicators behind (`wedged`), and the process must be replaced.
// Errors: kCancelled after Abort; kDeadlineExceeded; kCommFailure is what NCCL says about a peer (over NVLink and in
// shared memory it says nothing: the control plane detects death); kInternal an error of the device or of use. Source
// of the rule: NCCL's documentation of non-blocking communicators and of ncclCommAbort in groups (2.22).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "callbacks/handlers/cancel.h"
#include "replica/stream/nccl_api.h"
#include "runtime/base/clock.h"
#include "runtime/base/export.h"

namespace kintsugi {

class CudaDevice;  // the library's own

inline constexpr Duration kNcclAbortLimit = std::chrono::seconds(10);

// One communicator: several ids only where the library has the scalable init.
struct NcclMembership {
  int ranks = 1;
  int rank = 0;
  std::vector<NcclUniqueId> ids;
};

struct NcclInitLimits {
  TimePoint deadline;
  CancelToken* cancel = nullptr;
  int ctas_max = 16;  // 0: NCCL's choice
};

class KINTSUGI_EXPORT NcclCommunicators {
 public:
  static Result<std::unique_ptr<NcclCommunicators>> Init(std::shared_ptr<const NcclApi> api,
                                                         std::shared_ptr<CudaDevice> device,
                                                         const std::vector<NcclMembership>& memberships,
                                                         const NcclInitLimits& limits);
  ~NcclCommunicators();
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;

  size_t size() const;
  // For a trainer's own collectives; every one of its calls goes through Call.
  NcclComm handle(size_t index) const;

  // Runs `call`, which calls NCCL once, then waits until the communicator has taken it.
  Status Call(size_t index, const char* what, const std::function<int(NcclComm)>& call, TimePoint deadline);
  // What has become of the work under way: Ok while all is well.
  Status AsyncError(size_t index);

  // Step one of a repair on all ranks at once where NCCL has it (2.28.7): ends what is under way, keeps the
  // communicators. kUnavailable where it has not: then Abort.
  Status Revoke();

  void Abort();
  bool aborted() const;
  // After Abort: whether everything was freed within `limit`.
  bool WaitAborted(Duration limit);

 private:
  struct State;
  explicit NcclCommunicators(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State> state_;
};

}  // namespace kintsugi
