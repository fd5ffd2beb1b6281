#include "replica/reshard/execute.h"

#include <exception>
#include <map>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "replica/reshard/channel.h"
#include "runtime/base/mutex.h"

namespace kintsugi::reshard {
namespace {

// An execution under way: its channels, their threads, and the first error.
class Execution {
 public:
  Execution(const BoundPlan& plan, std::span<Link* const> links, const ExecuteOptions& options)
      : plan_(plan), links_(links), options_(options) {}

  Result<ExecuteResult> Run() {
    KINTSUGI_RETURN_IF_ERROR(MakeChannels());
    {
      std::optional<CancelToken::Subscription> cancelled;
      if (options_.cancel)
        cancelled.emplace(*options_.cancel, [this] { Fail({StatusCode::kCancelled, "the reshard was cancelled"}); });
      Start();
      Guard([this] { return CopyLocals(); });
      for (std::thread& thread : threads_) thread.join();
      if (!failed_.load()) Guard([this] { return SayGoodbye(); });
    }
    const MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    return Finish();
  }

 private:
  Status MakeChannels() {
    for (const auto& [peer, entries] : plan_.outgoing()) {
      KINTSUGI_ASSIGN_OR_RETURN(Link * link, LinkTo(peer));
      outboxes_.push_back(std::make_unique<MoveOutbox>(plan_, entries, *link, options_, counters_));
    }
    for (const auto& [peer, entries] : plan_.incoming()) {
      KINTSUGI_ASSIGN_OR_RETURN(Link * link, LinkTo(peer));
      inboxes_.push_back(std::make_unique<MoveInbox>(plan_, entries, *link, options_, counters_));
    }
    return Status::Ok();
  }

  Result<Link*> LinkTo(int32_t peer) const {
    Link* found = nullptr;
    for (Link* link : links_) {
      if (link->peer().value() != peer) continue;
      if (found) return Status(StatusCode::kInvalidArgument, "two links to rank " + std::to_string(peer));
      found = link;
    }
    if (found) return found;
    return Status(StatusCode::kInvalidArgument, "rank " + std::to_string(plan_.rank()) + " has moves with rank " +
                                                    std::to_string(peer) + " and no link to it");
  }

  void Start() {
    try {
      for (const auto& box : outboxes_) {
        if (box->is_staged()) threads_.emplace_back([this, &box] { Guard([&] { return box->Pack(); }); });
        threads_.emplace_back([this, &box] { Guard([&] { return box->Send(); }); });
      }
      for (const auto& box : inboxes_) {
        if (box->is_staged()) threads_.emplace_back([this, &box] { Guard([&] { return box->Unpack(); }); });
        threads_.emplace_back([this, &box] { Guard([&] { return box->Receive(); }); });
      }
    } catch (const std::system_error& error) {
      Fail(
          {StatusCode::kResourceExhausted, "no thread for rank " + std::to_string(plan_.rank()) + ": " + error.what()});
    }
  }

  // The edge for what is thrown below it.
  template <typename Body>
  void Guard(const Body& body) {
    Status status;
    try {
      status = body();
    } catch (const std::bad_alloc&) {
      status = {StatusCode::kResourceExhausted, "no memory for a message"};
    } catch (const std::exception& error) {
      status = {StatusCode::kInternal, error.what()};
    }
    if (!status.ok()) Fail(status);
  }

  // Keeps the first error and ends all waits.
  void Fail(const Status& status) {
    {
      const MutexLock lock(mutex_);
      if (!failure_.ok()) return;
      failure_ = status;
    }
    failed_.store(true);
    for (const auto& box : outboxes_) box->Stop();
    for (const auto& box : inboxes_) box->Stop();
    for (Link* link : links_) link->Abort();
  }

  Status CopyLocals() {
    for (const BoundPlan::Entry& entry : plan_.local()) {
      if (failed_.load()) return Status::Ok();
      const BoundMove move = plan_.Resolve(entry);
      if (move.is_object()) {
        const auto* data = static_cast<const uint8_t*>(move.source->data);
        move.target->object->assign(data, data + move.source->size_bytes);
        counters_.object_bytes += static_cast<int64_t>(move.source->size_bytes);
      } else {
        CopyLocally(move);
        local_bytes_ += move.elements * move.element_bytes;
      }
    }
    return Status::Ok();
  }

  // A rank that returns may destroy its links: only when its peers have all that it sent. Every rank goes through its
  // peers in ascending order, so through the pairs of ranks in one order that all share, and the first pair that is not
  // done yet has both its ranks at it; within a pair the lower rank speaks first.
  Status SayGoodbye() {
    std::map<int32_t, Link*> peers;
    for (const auto* moves : {&plan_.outgoing(), &plan_.incoming()})
      for (const auto& [peer, entries] : *moves) peers[peer] = *LinkTo(peer);
    for (const auto& [peer, link] : peers) {
      uint8_t theirs = 0;
      const uint8_t ours = 1;
      if (plan_.rank() < peer) KINTSUGI_RETURN_IF_ERROR(SendBytes(*link, &ours, 1, options_.deadline));
      KINTSUGI_RETURN_IF_ERROR(link->Receive(&theirs, 1, options_.deadline));
      if (plan_.rank() > peer) KINTSUGI_RETURN_IF_ERROR(SendBytes(*link, &ours, 1, options_.deadline));
    }
    return Status::Ok();
  }

  // Bytes that moved are the plan's, or there is a bug.
  Result<ExecuteResult> Finish() const {
    int64_t to_send = 0, to_receive = 0;
    for (const auto& [peer, entries] : plan_.outgoing()) to_send += plan_.BytesOf(entries);
    for (const auto& [peer, entries] : plan_.incoming()) to_receive += plan_.BytesOf(entries);
    const std::pair<int64_t, int64_t> counts[] = {
        {counters_.sent, to_send}, {counters_.received, to_receive}, {local_bytes_, plan_.BytesOf(plan_.local())}};
    for (const auto& [moved, planned] : counts)
      if (moved != planned)
        return Status(StatusCode::kInternal, "rank " + std::to_string(plan_.rank()) + " moved " +
                                                 std::to_string(moved) + " bytes, its plan says " +
                                                 std::to_string(planned));
    ExecuteResult result;
    result.bytes_sent = counters_.sent;
    result.bytes_received = counters_.received;
    result.bytes_local = local_bytes_;
    result.bytes_unstaged = counters_.unstaged;
    result.object_bytes = counters_.object_bytes;
    result.messages = counters_.messages;
    result.staging_bytes_peak = counters_.staging.peak();
    return result;
  }

  const BoundPlan& plan_;
  const std::span<Link* const> links_;
  const ExecuteOptions& options_;
  Counters counters_;
  std::vector<std::unique_ptr<MoveOutbox>> outboxes_;
  std::vector<std::unique_ptr<MoveInbox>> inboxes_;
  std::vector<std::thread> threads_;
  int64_t local_bytes_ = 0;
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  Status failure_ KINTSUGI_GUARDED_BY(mutex_);
};

Result<ExecuteResult> Carry(const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target,
                            int32_t rank, const Bindings& bindings, std::span<Link* const> links,
                            const ExecuteOptions& options) {
  if (options.window_bytes < kWindowMessages * kMessageBytesMin)
    return Status(StatusCode::kInvalidArgument, "window_bytes is " + std::to_string(options.window_bytes) +
                                                    ", at least " + std::to_string(kWindowMessages * kMessageBytesMin));
  const TimePoint start = SteadyClock::SteadyNow();
  KINTSUGI_ASSIGN_OR_RETURN(const BoundPlan bound, BoundPlan::Bind(plan, source, target, rank, bindings));
  const TimePoint bound_at = SteadyClock::SteadyNow();
  KINTSUGI_ASSIGN_OR_RETURN(ExecuteResult result, Execution(bound, links, options).Run());
  result.check_time = bound_at - start;
  result.move_time = SteadyClock::SteadyNow() - bound_at;
  return result;
}

}  // namespace

Status CheckExecution(const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target,
                      int32_t rank, const Bindings& bindings) {
  return BoundPlan::Bind(plan, source, target, rank, bindings).status();
}

Result<ExecuteResult> Execute(const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target,
                              int32_t rank, const Bindings& bindings, std::span<Link* const> links,
                              const ExecuteOptions& options) {
  auto result = Carry(plan, source, target, rank, bindings, links, options);
  if (result.ok()) return result;
  for (Link* link : links) link->Abort();
  return result.status().Annotate("reshard, rank " + std::to_string(rank));
}

}  // namespace kintsugi::reshard
