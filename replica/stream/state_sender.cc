// The sending side of the state stream.
#include <utility>

#include "replica/stream/block_table.h"
#include "replica/stream/manifest.pb.h"
#include "replica/stream/state_stream.h"
#include "replica/stream/stream_wire.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

class Sender {
 public:
  Sender(Link& link, const std::vector<StreamItem>& items, Step step, const SendOptions& options)
      : link_(link), items_(items), step_(step), options_(options), table_(items) {}

  Status Serve() {
    KINTSUGI_RETURN_IF_ERROR(SendManifest());
    for (;;) {
      // The receiver may be busy with other sources for as long as the whole state takes.
      KINTSUGI_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(link_, WaitLimit(options_.limits, table_.bytes())));
      if (frame.kind == FrameKind::kEnd) return End(frame.body);
      if (frame.kind != FrameKind::kRequest) return Unexpected("frame");
      KINTSUGI_RETURN_IF_ERROR(Answer(frame.body));
    }
  }

 private:
  Status SendManifest() {
    if (options_.objects.size() > kObjectsBytesMax)
      return {StatusCode::kInvalidArgument, "objects of " + std::to_string(options_.objects.size()) +
                                                " bytes; the limit is " + std::to_string(kObjectsBytesMax)};
    stream::StreamManifest manifest;
    manifest.set_version(2);
    manifest.set_step(step_.value());
    manifest.set_block_bytes(kStreamBlockBytes);
    manifest.set_checksum(static_cast<uint32_t>(options_.checksum));
    for (const StreamItem& item : items_) {
      auto* entry = manifest.add_entries();
      entry->set_key(item.key);
      entry->set_size_bytes(item.memory.size_bytes);
    }
    manifest.set_digest(table_.ManifestDigest(step_));
    manifest.set_objects_bytes(options_.objects.size());
    manifest.set_objects_hash(HashBytes(options_.objects.data(), options_.objects.size()));
    const std::string body = manifest.SerializeAsString();
    // The receiver may still be opening links to other sources, which may be busy elsewhere.
    KINTSUGI_RETURN_IF_ERROR(SendFrame(link_, FrameKind::kManifest, body, options_.limits.deadline));
    if (options_.objects.empty()) return Status::Ok();
    return SendBytes(link_, options_.objects.data(), options_.objects.size(),
                     WaitLimit(options_.limits, options_.objects.size()));
  }

  Status Answer(const std::string& body) {
    stream::BlockRequest request;
    if (!request.ParseFromString(body) || request.first_size() != request.count_size()) return Unexpected("request");
    BlockObserver observer(options_.checksum);
    const bool check = options_.checksum != ChecksumAlgorithm::kNone;
    uint64_t sent_blocks = 0;
    for (int i = 0; i < request.first_size(); ++i) {
      const BlockRange range{request.first(i), request.count(i)};
      if (range.first > table_.blocks() || range.count > table_.blocks() - range.first)
        return Unexpected("block number");
      for (const BlockRun& run : table_.Runs(range)) {
        KINTSUGI_RETURN_IF_ERROR(link_.Send(run.item->memory, run.offset, run.size_bytes,
                                            WaitLimit(options_.limits, run.size_bytes), check ? &observer : nullptr));
        observer.EndRun();
      }
      sent_blocks += range.count;
    }
    if (!check) return Status::Ok();
    const auto& sums = observer.checksums();
    KINTSUGI_CHECK(sums.size() == sent_blocks, "each block that was sent has a checksum");
    return SendBytes(link_, sums.data(), sums.size() * sizeof(uint64_t), WaitLimit(options_.limits, 0));
  }

  Status End(const std::string& body) {
    stream::StreamEnd end;
    if (!end.ParseFromString(body)) return Unexpected("end");
    if (end.code() == 0) return Status::Ok();
    return {static_cast<StatusCode>(end.code()), "rank " + link_.peer().ToString() + " gave up: " + end.text()};
  }

  Status Unexpected(const char* what) const {
    return {StatusCode::kDataLoss, std::string("rank ") + link_.peer().ToString() + " sent a " + what +
                                       " that the state stream does not know"};
  }

  Link& link_;
  const std::vector<StreamItem>& items_;
  const Step step_;
  const SendOptions& options_;
  const BlockTable table_;
};

}  // namespace

Status SendState(Link& link, const std::vector<StreamItem>& items, Step step, const SendOptions& options) {
  return Sender(link, items, step, options)
      .Serve()
      .Annotate("sending state of step " + step.ToString() + " to rank " + link.peer().ToString());
}

}  // namespace kintsugi
