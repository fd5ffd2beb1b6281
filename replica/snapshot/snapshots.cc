#include "replica/snapshot/snapshots.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>

#include "kernels/host_copy.h"
#include "replica/snapshot/snapshot_links.h"

namespace kintsugi {
namespace {

const std::atomic<bool> kNever{false};

}  // namespace

Snapshots::Snapshots(const StateRegistry& registry, Objects objects, ReplicaOptions options)
    : registry_(registry), objects_(std::move(objects)), options_(std::move(options)), store_(registry) {}

Snapshots::~Snapshots() { Stop(); }

void Snapshots::StartThread(std::thread* thread, std::function<void()> body) {
  // The host's signals stay with the host's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  *thread = std::thread([body = std::move(body)] {
    prctl(PR_SET_NAME, "kintsugi-snap");
    body();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Snapshots::Prepare(const Session& session, const SnapshotOrder& order) {
  std::shared_ptr<SnapshotLinks> old;
  {
    const MutexLock lock(mutex_);
    if (stop_) return;
    if (!links_ || links_->session().generation != session.generation) {
      old = std::exchange(links_, std::make_shared<SnapshotLinks>(session, options_));
    }
    order_ = armed_ = order;
    taken_.reset();
    if (!worker_.joinable()) StartThread(&worker_, [this] { Work(); });
  }
  changed_.NotifyAll();
  if (old) old->Abort();
}

void Snapshots::Take(Step step) {
  {
    const MutexLock lock(mutex_);
    if (!armed_ || armed_->step != step) return;
    taken_ = std::exchange(armed_, std::nullopt);
  }
  changed_.NotifyAll();
}

void Snapshots::Abort() {
  std::shared_ptr<SnapshotLinks> links;
  {
    const MutexLock lock(mutex_);
    links = links_;
    order_.reset();
    armed_.reset();
    taken_.reset();
  }
  if (links) links->Abort();
}

void Snapshots::Stop() {
  Abort();
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  if (worker_.joinable()) worker_.join();
}

void Snapshots::Work() {
  for (;;) {
    std::shared_ptr<SnapshotLinks> links;
    std::optional<SnapshotOrder> ready, copy;
    {
      MutexLock lock(mutex_);
      reading_ = false;
      changed_.NotifyAll();
      changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return stop_ || order_ || taken_; });
      if (stop_) break;
      links = links_;
      ready = std::exchange(order_, std::nullopt);
      if (!ready) copy = std::exchange(taken_, std::nullopt);
      reading_ = true;
    }
    if (ready) GetReady(links, *ready);
    if (copy) Copy(*links, *copy);
  }
  for (Incoming& incoming : incoming_) incoming.thread.join();
}

void Snapshots::GetReady(const std::shared_ptr<SnapshotLinks>& links, const SnapshotOrder& order) {
  std::vector<Rank> owners = order.of;
  owners.push_back(links->session().self);
  store_.KeepOnly(owners, order.keep);
  own_.reset();
  const auto tensors = OwnTensors();
  ready_ = tensors.status();
  if (tensors.ok()) {
    auto own = store_.Begin(links->session().self, order.step, order.keep, *tensors);
    ready_ = own.status();
    if (own.ok()) own_ = std::move(own).value();
  }
  DoneReading();
  // A link that does not open fails the copy that needs it.
  (void)links->Open(order);
  for (auto incoming = incoming_.begin(); incoming != incoming_.end();) {
    if (links->in(incoming->owner) == incoming->link) {
      ++incoming;
      continue;
    }
    incoming->thread.join();  // of a link that broke, or of an older generation: it was aborted
    incoming = incoming_.erase(incoming);
  }
  for (Rank owner : order.of) {
    const auto link = links->in(owner);
    const bool running = std::any_of(incoming_.begin(), incoming_.end(),
                                     [&](const Incoming& incoming) { return incoming.link == link; });
    if (!link || running) continue;
    Incoming& incoming = incoming_.emplace_back(Incoming{owner, link, {}});
    StartThread(&incoming.thread, [this, links, owner, link] { Receive(links, owner, link); });
  }
}

// What follows works on copies: a repair may have the state.
void Snapshots::DoneReading() {
  {
    const MutexLock lock(mutex_);
    reading_ = false;
  }
  changed_.NotifyAll();
}

void Snapshots::AwaitQuiet() {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return !reading_; });
}

// ---- for a reload --------------------------------------------------------------------------------------------------

Result<std::shared_ptr<const Snapshot>> Snapshots::Checked(Rank owner, Step step) const {
  std::shared_ptr<const Snapshot> snapshot = store_.Find(owner, step);
  const std::string what = "in-memory snapshot of rank " + owner.ToString() + " at step " + step.ToString();
  if (!snapshot) return Status(StatusCode::kNotFound, "no whole " + what + " is held here");
  if (*snapshot->Digests(kNever) != snapshot->digests)
    return Status(StatusCode::kDataLoss, "the " + what + " was damaged where it is held");
  return snapshot;
}

Status Snapshots::Restore(const Snapshot& snapshot, const std::vector<int>& except) const {
  for (const auto& [key, tensor] : registry_.tensors()) {
    if (std::find(except.begin(), except.end(), tensor.layout) != except.end()) continue;
    const auto found = std::find_if(snapshot.tensors.begin(), snapshot.tensors.end(),
                                    [&key = key](const SnapshotTensor& held) { return held.key == key; });
    if (found == snapshot.tensors.end() || found->size_bytes != tensor.memory.size_bytes)
      return {StatusCode::kDataLoss, "tensor '" + key + "' of " + std::to_string(tensor.memory.size_bytes) +
                                         " bytes is not in the in-memory snapshot of step " + snapshot.step.ToString()};
    const void* held = snapshot.memory[static_cast<size_t>(found - snapshot.tensors.begin())].data;
    KINTSUGI_ASSIGN_OR_RETURN(const DeviceMemory* const device, registry_.DeviceOf(tensor));
    if (device)
      KINTSUGI_RETURN_IF_ERROR(
          device->Write(tensor.memory.data, held, found->size_bytes).Annotate("tensor '" + key + "'"));
    else
      StreamCopy(tensor.memory.data, held, found->size_bytes);
  }
  return Status::Ok();
}

}  // namespace kintsugi
