// The receiving side of the state stream: one session per source, all of them working off one plan.
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

#include "replica/stream/block_table.h"
#include "replica/stream/manifest.pb.h"
#include "replica/stream/receive_plan.h"
#include "replica/stream/state_stream.h"
#include "replica/stream/stream_wire.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

struct Job {
  const std::vector<StreamItem>& items;
  const BlockTable& table;
  const Step step;
  const StreamLimits& limits;
  ReceivePlan& plan;
};

class Session {
 public:
  Session(const Job& job, size_t source, Link& link) : job_(job), source_(source), link_(link) {}

  void Run() {
    try {
      status_ = Receive();
    } catch (const std::exception& e) {
      status_ = Status(StatusCode::kInternal, e.what());
    }
    if (!status_.ok()) job_.plan.Drop(in_work_);
    status_ =
        status_.Annotate("receiving state of step " + job_.step.ToString() + " from rank " + link_.peer().ToString());
  }

  const Status& status() const { return status_; }
  uint64_t bytes() const { return bytes_; }
  std::vector<uint8_t>& objects() { return objects_; }

 private:
  using Request = std::vector<BlockRange>;

  Status Receive() {
    if (const Status fits = TakeManifest(); !fits.ok()) {
      (void)SayEnd(fits);
      return fits;
    }
    for (;;) {
      in_work_ = job_.plan.Take(source_);
      if (in_work_.empty()) {
        const Status failure = job_.plan.failure();
        const Status said = SayEnd(failure);
        return failure.ok() ? said : failure;
      }
      // One request at a time: a link may hold a send back until it is received, and the source is busy sending blocks.
      KINTSUGI_RETURN_IF_ERROR(Ask(in_work_));
      KINTSUGI_RETURN_IF_ERROR(TakeBlocks(in_work_));
    }
  }

  Status TakeManifest() {
    KINTSUGI_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(link_, WaitLimit(job_.limits, kStreamBlockBytes)));
    stream::StreamManifest manifest;
    if (frame.kind != FrameKind::kManifest || !manifest.ParseFromString(frame.body))
      return {StatusCode::kDataLoss, "the first message is no manifest"};
    KINTSUGI_RETURN_IF_ERROR(Compare(manifest));
    const auto algorithm = ChecksumFromNumber(manifest.checksum());
    if (!algorithm)
      return {StatusCode::kFailedPrecondition, "unknown checksum algorithm " + std::to_string(manifest.checksum()) +
                                                   ": the ranks run different versions"};
    checksum_ = *algorithm;
    if (manifest.objects_bytes() > kObjectsBytesMax) return {StatusCode::kDataLoss, "no objects are so large"};
    objects_.resize(manifest.objects_bytes());
    if (!objects_.empty())
      KINTSUGI_RETURN_IF_ERROR(
          link_.Receive(objects_.data(), objects_.size(), WaitLimit(job_.limits, objects_.size())));
    if (HashBytes(objects_.data(), objects_.size()) != manifest.objects_hash())
      return {StatusCode::kDataLoss, "the mirrored objects arrived damaged"};
    return Status::Ok();
  }

  Status Compare(const stream::StreamManifest& manifest) const {
    const auto differs = [](const std::string& what, const std::string& here, const std::string& there) {
      return Status(StatusCode::kFailedPrecondition, what + ": here " + here + ", at the source " + there);
    };
    if (manifest.version() != 2 || manifest.block_bytes() != kStreamBlockBytes)
      return differs("stream version and block size", "2, " + std::to_string(kStreamBlockBytes),
                     std::to_string(manifest.version()) + ", " + std::to_string(manifest.block_bytes()));
    if (manifest.step() != job_.step.value())
      return differs("step", job_.step.ToString(), std::to_string(manifest.step()));
    if (static_cast<size_t>(manifest.entries_size()) != job_.items.size())
      return differs("number of tensors", std::to_string(job_.items.size()), std::to_string(manifest.entries_size()));
    for (int i = 0; i < manifest.entries_size(); ++i) {
      const StreamItem& mine = job_.items[static_cast<size_t>(i)];
      const auto& theirs = manifest.entries(i);
      if (theirs.key() != mine.key)
        return differs("tensor " + std::to_string(i), "'" + mine.key + "'", "'" + theirs.key() + "'");
      if (theirs.size_bytes() != mine.memory.size_bytes)
        return differs("bytes of tensor '" + mine.key + "'", std::to_string(mine.memory.size_bytes),
                       std::to_string(theirs.size_bytes()));
    }
    if (manifest.digest() != job_.table.ManifestDigest(job_.step))
      return {StatusCode::kDataLoss, "the manifest's digest does not fit its entries"};
    return Status::Ok();
  }

  Status Ask(const Request& request) {
    stream::BlockRequest message;
    for (const BlockRange& range : request) {
      message.add_first(range.first);
      message.add_count(range.count);
    }
    return SendFrame(link_, FrameKind::kRequest, message.SerializeAsString(), WaitLimit(job_.limits, 0));
  }

  Status TakeBlocks(const Request& request) {
    BlockObserver observer(checksum_);
    const bool check = checksum_ != ChecksumAlgorithm::kNone;
    for (const BlockRange& range : request) {
      for (const BlockRun& run : job_.table.Runs(range)) {
        auto* target = static_cast<uint8_t*>(run.item->memory.data) + run.offset;
        KINTSUGI_RETURN_IF_ERROR(
            link_.Receive(target, run.size_bytes, WaitLimit(job_.limits, run.size_bytes), check ? &observer : nullptr));
        observer.EndRun();
        bytes_ += run.size_bytes;
        if (!check) job_.plan.Arrived(run.blocks);
      }
    }
    return check ? CheckBlocks(request, observer.checksums()) : Status::Ok();
  }

  Status CheckBlocks(const Request& request, const std::vector<uint64_t>& computed) {
    uint64_t asked = 0;
    for (const BlockRange& range : request) asked += range.count;
    KINTSUGI_CHECK(computed.size() == asked, "each block that was asked for has a checksum");
    std::vector<uint64_t> sent(computed.size());
    KINTSUGI_RETURN_IF_ERROR(link_.Receive(sent.data(), sent.size() * sizeof(uint64_t), WaitLimit(job_.limits, 0)));
    size_t number = 0;
    for (const BlockRange& range : request) {
      for (uint64_t block = range.first; block < range.first + range.count; ++block, ++number) {
        if (sent[number] != computed[number])
          job_.plan.Damaged(source_, block, Damage(block, sent[number], computed[number]));
      }
      job_.plan.Arrived(range);
    }
    return Status::Ok();
  }

  std::string Damage(uint64_t block, uint64_t sent, uint64_t computed) const {
    char values[96];
    std::snprintf(values, sizeof(values), ": %s %016llx at the source, %016llx here", ChecksumName(checksum_).data(),
                  static_cast<unsigned long long>(sent), static_cast<unsigned long long>(computed));
    return job_.table.Describe(block) + " arrived damaged twice, last from rank " + link_.peer().ToString() + values;
  }

  Status SayEnd(const Status& outcome) {
    stream::StreamEnd end;
    end.set_code(static_cast<uint32_t>(outcome.code()));
    end.set_text(outcome.message());
    return SendFrame(link_, FrameKind::kEnd, end.SerializeAsString(), WaitLimit(job_.limits, 0));
  }

  const Job& job_;
  const size_t source_;
  Link& link_;
  ChecksumAlgorithm checksum_ = ChecksumAlgorithm::kNone;
  Request in_work_;
  std::vector<uint8_t> objects_;
  uint64_t bytes_ = 0;
  Status status_;
};

// What the call returns when blocks are missing: an abort explains every other error, else the first one.
Status Explain(const std::vector<Session>& sessions) {
  Status first;
  for (const Session& session : sessions) {
    if (session.status().code() == StatusCode::kCancelled) return session.status();
    if (first.ok()) first = session.status();
  }
  return first.ok() ? Status(StatusCode::kInternal, "state stream ended with blocks missing and no error") : first;
}

}  // namespace

Status ReceiveState(const std::vector<Link*>& sources, const std::vector<StreamItem>& items, Step step,
                    ReceiveLedger& ledger, const ReceiveOptions& options, StreamResult* result) {
  if (sources.empty()) return {StatusCode::kInvalidArgument, "receiving state needs at least one source"};
  const BlockTable table(items);
  ledger.Begin(step, table.ManifestDigest(step), table.blocks());
  *result = {};
  result->blocks_kept = ledger.arrived();
  ReceivePlan plan(table, ledger, sources.size(), options.request_blocks);
  const Job job{items, table, step, options.limits, plan};
  std::vector<Session> sessions;
  for (size_t i = 0; i < sources.size(); ++i) sessions.emplace_back(job, i, *sources[i]);
  {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < sessions.size(); ++i) threads.emplace_back([&, i] { sessions[i].Run(); });
    sessions[0].Run();
    for (auto& thread : threads) thread.join();
  }
  for (Session& session : sessions) {
    result->bytes_received += session.bytes();
    result->bytes_by_source.push_back(session.bytes());
    result->source_status.push_back(session.status());
    result->objects.push_back(std::move(session.objects()));
  }
  result->blocks_damaged = plan.blocks_damaged();
  KINTSUGI_RETURN_IF_ERROR(plan.failure());
  KINTSUGI_CHECK(plan.complete() == ledger.complete(), "a plan and its ledger agree that all blocks are there");
  return plan.complete() ? Status::Ok() : Explain(sessions);
}

}  // namespace kintsugi
