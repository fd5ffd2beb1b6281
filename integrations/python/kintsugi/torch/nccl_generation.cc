#include <c10/util/Exception.h>
#include <nccl_generation.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace kintsugi::torch_door {
namespace {

using Clock = std::chrono::steady_clock;
// Usual calls take up to 50 us. One that takes longer is stuck, and is ended by the flag.
constexpr auto kUsualCall = std::chrono::milliseconds(2);

std::atomic<int> left_behind{0};

}  // namespace

int LeftBehind() { return left_behind; }

struct NcclGeneration::State {
  std::atomic<int> inside{0};
  std::atomic<bool> is_void{false};
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by the mutex.
  std::vector<NcclComm> comms;
  bool cut = false;       // the aborting thread may begin
  bool may_free = false;  // and go on to phase two
  bool freed = false;

  // On the thread of its own: everything of an abort.
  void Abort(const NcclFunctions& nccl) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return cut; });
    nccl.group_start();
    size_t flagged = 0;
    for (;;) {
      // Also those that were made known meanwhile: their init is ended.
      while (flagged < comms.size()) {
        NcclComm const comm = comms[flagged++];
        lock.unlock();
        nccl.abort(comm);
        lock.lock();
      }
      if (may_free && inside == 0) break;
      changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    lock.unlock();
    nccl.group_end();
    lock.lock();
    freed = true;
    changed.notify_all();
  }
};

NcclGeneration::NcclGeneration(std::shared_ptr<const NcclFunctions> nccl)
    : nccl_(std::move(nccl)), state_(std::make_shared<State>()) {
  std::thread([state = state_, nccl = nccl_] { state->Abort(*nccl); }).detach();
}

NcclGeneration::~NcclGeneration() {
  Cut();
  Free(std::chrono::milliseconds(0));
}

NcclGeneration::Call::Call(NcclGeneration& generation) : generation_(generation) {
  // Counted before the flag is looked at: either Cut sees the call, or the call sees the flag.
  ++generation_.state_->inside;
  if (!generation_.Void()) return;
  --generation_.state_->inside;
  generation_.CheckNotVoid();
}

NcclGeneration::Call::~Call() { --generation_.state_->inside; }

std::vector<NcclComm> NcclGeneration::Connect(const std::vector<Member>& members) {
  const Call call(*this);
  std::vector<NcclComm> made;
  NcclSettings config;
  nccl_->Check(nccl_->group_start(), "ncclGroupStart");
  int result = 0;
  for (const Member& member : members) {
    NcclComm comm = nullptr;
    result = nccl_->init_rank_config(&comm, member.ranks, member.id, member.rank, &config);
    if (result != 0) break;
    made.push_back(comm);
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->comms.insert(state_->comms.end(), made.begin(), made.end());
  }
  state_->changed.notify_all();
  const int ended = nccl_->group_end();
  CheckNotVoid();
  nccl_->Check(result, "ncclCommInitRankConfig");
  nccl_->Check(ended, "ncclGroupEnd of an init");
  return made;
}

void NcclGeneration::Cut() {
  if (state_->is_void.exchange(true)) return;
  for (const auto until = Clock::now() + kUsualCall; state_->inside > 0 && Clock::now() < until;)
    std::this_thread::yield();
  {
    std::lock_guard lock(state_->mutex);
    state_->cut = true;
  }
  state_->changed.notify_all();
}

bool NcclGeneration::Void() const { return state_->is_void; }

void NcclGeneration::CheckNotVoid() const { TORCH_CHECK(!Void(), "was aborted: an incident has begun"); }

bool NcclGeneration::Free(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  const bool is_first = !state_->may_free;
  state_->may_free = true;
  state_->changed.notify_all();
  if (state_->changed.wait_for(lock, limit, [&] { return state_->freed; })) return true;
  if (is_first && limit.count() > 0) ++left_behind;
  return false;
}

}  // namespace kintsugi::torch_door
