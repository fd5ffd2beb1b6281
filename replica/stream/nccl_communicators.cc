#include "replica/stream/nccl_communicators.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "replica/stream/cuda_driver.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

constexpr auto kPollPause = 100us;

StatusCode CodeOf(int result) {
  return result == kNcclRemoteError || result == kNcclSystemError ? StatusCode::kCommFailure : StatusCode::kInternal;
}

}  // namespace

struct NcclCommunicators::State {
  struct One {
    Mutex mutex;                                         // held inside every NCCL call on `comm`
    NcclComm comm KINTSUGI_GUARDED_BY(mutex) = nullptr;  // null once aborted
  };

  State(std::shared_ptr<const NcclApi> nccl, std::shared_ptr<CudaDevice> on, size_t count)
      : api(std::move(nccl)), device(std::move(on)), all(count) {}

  One& At(size_t index) {
    KINTSUGI_CHECK(index < all.size(), "a communicator is one of those that were made");
    return all[index];
  }
  Status Aborted(const char* what) const { return {StatusCode::kCancelled, std::string(what) + " was aborted"}; }

  // The asynchronous state; kNcclInvalidUsage where there is no communicator any more.
  int Poll(One& one) {
    const MutexLock lock(one.mutex);
    if (!one.comm) return kNcclInvalidUsage;
    int result = kNcclSuccess;
    const int asked = api->get_async_error(one.comm, &result);
    return asked == kNcclSuccess ? result : asked;
  }

  Status Settle(One& one, const char* what, TimePoint deadline, const CancelToken* cancel) {
    const TimePoint start = SteadyClock::SteadyNow();
    for (;;) {
      if (aborting) return Aborted(what);
      const int result = Poll(one);
      if (result == kNcclSuccess) return Status::Ok();
      if (aborting) return Aborted(what);
      if (result != kNcclInProgress) return {CodeOf(result), Describe(one, what, result)};
      const TimePoint now = SteadyClock::SteadyNow();
      if (cancel && cancel->cancelled()) return {StatusCode::kCancelled, std::string(what) + " was superseded"};
      if (now >= deadline)
        return {StatusCode::kDeadlineExceeded,
                std::string(what) + " took " + std::to_string(static_cast<int64_t>(ToMilliseconds(now - start))) +
                    " ms, limit " + std::to_string(static_cast<int64_t>(ToMilliseconds(deadline - start))) +
                    " ms: a rank of the communicator is missing or silent"};
      std::this_thread::sleep_for(kPollPause);
    }
  }

  std::string Describe(One& one, const char* what, int result) {
    const MutexLock lock(one.mutex);
    return api->Describe(what, result, one.comm);
  }

  void AbortAll() {
    static_cast<void>(device->Bind());
    // Taken out under the lock: then no thread is inside a call on it, and none waits for a lock while it is freed.
    std::vector<NcclComm> comms;
    for (One& one : all) {
      const MutexLock lock(one.mutex);
      if (one.comm) comms.push_back(std::exchange(one.comm, nullptr));
    }
    api->group_start();
    for (NcclComm comm : comms) api->abort(comm);
    api->group_end();
    const MutexLock lock(mutex);
    freed = true;
    changed.NotifyAll();
  }

  const std::shared_ptr<const NcclApi> api;
  const std::shared_ptr<CudaDevice> device;
  std::deque<One> all;
  std::atomic<bool> aborting{false};
  // How long the end waits for an abort: hardly while ranks may be missing that an abort would have to be waited for.
  Duration abort_limit = 100ms;
  Mutex mutex;
  CondVar changed;
  bool freed KINTSUGI_GUARDED_BY(mutex) = false;
};

Result<std::unique_ptr<NcclCommunicators>> NcclCommunicators::Init(std::shared_ptr<const NcclApi> api,
                                                                   std::shared_ptr<CudaDevice> device,
                                                                   const std::vector<NcclMembership>& memberships,
                                                                   const NcclInitLimits& limits) {
  KINTSUGI_RETURN_IF_ERROR(device->Bind());
  for (const NcclMembership& one : memberships)
    if (one.ids.empty() || (one.ids.size() > 1 && !api->init_rank_scalable))
      return Status(StatusCode::kInvalidArgument, "a communicator of " + std::to_string(one.ranks) + " ranks has " +
                                                      std::to_string(one.ids.size()) + " ids; NCCL " +
                                                      NcclVersionText(api->version) + " takes " +
                                                      (api->init_rank_scalable ? "one or more" : "one"));
  std::unique_ptr<NcclCommunicators> result(
      new NcclCommunicators(std::make_shared<State>(api, device, memberships.size())));
  State& state = *result->state_;
  {
    // Without their mutexes: nobody else knows of them yet.
    Status failed;
    api->group_start();
    for (size_t i = 0; i < memberships.size() && failed.ok(); ++i) {
      const NcclMembership& member = memberships[i];
      NcclConfig config;
      if (limits.ctas_max > 0) config.ctas_max = limits.ctas_max;
      std::vector<NcclUniqueId> ids = member.ids;
      const int result_code =
          ids.size() == 1 ? api->init_rank_config(&state.all[i].comm, member.ranks, ids[0], member.rank, &config)
                          : api->init_rank_scalable(&state.all[i].comm, member.ranks, member.rank,
                                                    static_cast<int>(ids.size()), ids.data(), &config);
      if (result_code != kNcclSuccess && result_code != kNcclInProgress)
        failed = Status(CodeOf(result_code), api->Describe("creating an NCCL communicator", result_code, nullptr));
    }
    const int ended = api->group_end();
    if (failed.ok() && ended != kNcclSuccess && ended != kNcclInProgress)
      failed = Status(CodeOf(ended), api->Describe("creating NCCL communicators", ended, nullptr));
    KINTSUGI_RETURN_IF_ERROR(failed);
  }
  for (State::One& one : state.all)
    KINTSUGI_RETURN_IF_ERROR(state.Settle(one, "creating NCCL communicators", limits.deadline, limits.cancel));
  state.abort_limit = kNcclAbortLimit;
  return result;
}

NcclCommunicators::~NcclCommunicators() {
  Abort();
  static_cast<void>(WaitAborted(state_->abort_limit));
}

size_t NcclCommunicators::size() const { return state_->all.size(); }
NcclComm NcclCommunicators::handle(size_t index) const {
  State::One& one = state_->At(index);
  const MutexLock lock(one.mutex);
  return one.comm;
}

Status NcclCommunicators::Call(size_t index, const char* what, const std::function<int(NcclComm)>& call,
                               TimePoint deadline) {
  State::One& one = state_->At(index);
  int result = kNcclSuccess;
  {
    const MutexLock lock(one.mutex);
    if (state_->aborting || !one.comm) return state_->Aborted(what);
    result = call(one.comm);
  }
  if (result == kNcclInProgress) return state_->Settle(one, what, deadline, nullptr);
  if (result == kNcclSuccess) return Status::Ok();
  return {CodeOf(result), state_->Describe(one, what, result)};
}

Status NcclCommunicators::AsyncError(size_t index) {
  State::One& one = state_->At(index);
  const int result = state_->Poll(one);
  if (result == kNcclSuccess || result == kNcclInProgress) return Status::Ok();
  if (state_->aborting) return state_->Aborted("work of an NCCL communicator");
  return {CodeOf(result), state_->Describe(one, "work of an NCCL communicator", result)};
}

Status NcclCommunicators::Revoke() {
  if (!state_->api->revoke)
    return {StatusCode::kUnavailable, "NCCL " + NcclVersionText(state_->api->version) +
                                          " has no ncclCommRevoke (2.28.7 has); abort the communicators"};
  Status result;
  for (State::One& one : state_->all) {
    const MutexLock lock(one.mutex);
    if (!one.comm) return state_->Aborted("revoking NCCL communicators");
    const int code = state_->api->revoke(one.comm, 0);
    if (code != kNcclSuccess && code != kNcclInProgress && result.ok())
      result = Status(CodeOf(code), state_->api->Describe("ncclCommRevoke", code, one.comm));
  }
  return result;
}

void NcclCommunicators::Abort() {
  if (state_->aborting.exchange(true)) return;
  std::thread([state = state_] { state->AbortAll(); }).detach();
}

bool NcclCommunicators::aborted() const { return state_->aborting; }

bool NcclCommunicators::WaitAborted(Duration limit) {
  MutexLock lock(state_->mutex);
  return state_->changed.WaitFor(lock, limit, [this]() KINTSUGI_REQUIRES(state_->mutex) { return state_->freed; });
}

}  // namespace kintsugi
