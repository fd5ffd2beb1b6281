// The owner's side of an in-memory snapshot: the copy, and what goes to the partner.
#include <algorithm>

#include "kernels/host_copy.h"
#include "replica/snapshot/snapshot_links.h"
#include "replica/snapshot/snapshots.h"
#include "replica/snapshot/thread_cost.h"
#include "replica/stream/manifest.pb.h"
#include "replica/stream/stream_wire.h"

namespace kintsugi {
namespace {

// Between two looks at the gate word: some tens of microseconds of copying.
constexpr uint64_t kPieceBytes = 256 << 10;
// The same on a device: large enough for the bus.
constexpr uint64_t kDevicePieceBytes = 8 << 20;
constexpr Duration kSettlePause = std::chrono::microseconds(100);

}  // namespace

Result<std::vector<SnapshotTensor>> Snapshots::OwnTensors() const {
  std::vector<SnapshotTensor> tensors;
  for (const auto& [key, tensor] : registry_.tensors()) {
    KINTSUGI_RETURN_IF_ERROR(registry_.DeviceOf(tensor).status());
    tensors.push_back({SummaryOf(tensor), tensor.memory.size_bytes});
  }
  return tensors;
}

// Reads what the trainer may begin to overwrite at any moment: whatever a piece then held is thrown away, since the
// gate word says so afterwards (a sequence lock whose counter is the word). Known to ThreadSanitizer:
// tools/lib/tsan.supp.
// The step is committed on the host; its device may be still on its way there.
Status Snapshots::AwaitDevice(const SnapshotLinks& links, Step step) const {
  const auto& settled = links.session().settled;
  while (settled) {
    KINTSUGI_ASSIGN_OR_RETURN(const bool done, settled());
    if (done) break;
    if (links.aborted() || !links.session().unchanged(step))
      return {StatusCode::kCancelled, "the next gate came before the device had finished step " + step.ToString()};
    std::this_thread::sleep_for(kSettlePause);
  }
  return Status::Ok();
}

Status Snapshots::CopyTensors(const SnapshotLinks& links, Step step, const Snapshot& into) const {
  uint64_t bytes = 0;
  for (const Memory& memory : into.memory) bytes += memory.size_bytes;
  uint64_t done = 0;
  for (size_t i = 0; i < into.tensors.size(); ++i) {
    const ShardedTensor& tensor = registry_.tensors().at(into.tensors[i].key);
    KINTSUGI_ASSIGN_OR_RETURN(const DeviceMemory* const device, registry_.DeviceOf(tensor));
    const auto* from = static_cast<const uint8_t*>(tensor.memory.data);
    const uint64_t piece_bytes = device ? kDevicePieceBytes : kPieceBytes;
    for (uint64_t at = 0; at < into.tensors[i].size_bytes; at += piece_bytes) {
      const uint64_t piece = std::min(piece_bytes, into.tensors[i].size_bytes - at);
      auto* to = static_cast<uint8_t*>(into.memory[i].data) + at;
      if (device)
        KINTSUGI_RETURN_IF_ERROR(device->Read(to, from + at, piece, {.stop = &links.aborted()}));
      else
        StreamCopy(to, from + at, piece);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (links.aborted() || !links.session().unchanged(step))
        return {StatusCode::kCancelled,
                "the next gate came after " + std::to_string(done) + " of " + std::to_string(bytes) + " bytes"};
      done += piece;
    }
  }
  return Status::Ok();
}

Status Snapshots::CopyOwn(const SnapshotLinks& links, const SnapshotOrder& order, SnapshotReport* report) {
  KINTSUGI_RETURN_IF_ERROR(ready_);
  if (!own_ || own_->step != order.step)
    return {StatusCode::kUnavailable, "the boundary came before the rank was ready for it"};
  const Rank self = links.session().self;
  Status copied = AwaitDevice(links, order.step);
  if (copied.ok()) copied = CopyTensors(links, order.step, *own_);
  if (copied.ok()) own_->objects = objects_(order.step);
  // The objects of two steps are kept: those of this one until the update of the next.
  if (copied.ok() && (links.aborted() || !links.session().unchanged(order.step)))
    copied = {StatusCode::kCancelled, "the next gate came before the objects were copied"};
  std::optional<std::map<int, uint64_t>> digests;
  if (copied.ok()) digests = own_->Digests(links.aborted());
  if (copied.ok() && !digests) copied = {StatusCode::kCancelled, "an incident has begun"};
  if (!copied.ok()) {
    store_.Abandon(self);
    return copied;
  }
  report->digests = own_->digests = *digests;
  store_.Finish(self);
  return Status::Ok();
}

Status Snapshots::Send(SnapshotLinks& links, const SnapshotOrder& order, const Snapshot& snapshot) const {
  const auto link = links.out();
  if (!link) return {StatusCode::kCommFailure, "the link to rank " + order.partner.ToString() + " did not open"};
  stream::SnapshotOffer offer;
  offer.set_step(order.step.value());
  offer.set_keep(order.keep.value());
  for (const SnapshotTensor& tensor : snapshot.tensors) {
    auto* entry = offer.add_tensors();
    entry->set_layout(tensor.layout);
    entry->set_key(tensor.key);
    entry->set_size_bytes(tensor.size_bytes);
    entry->set_dtype(static_cast<uint32_t>(tensor.dtype));
    entry->mutable_global_shape()->Assign(tensor.global_shape.begin(), tensor.global_shape.end());
    entry->mutable_local_shape()->Assign(tensor.local_shape.begin(), tensor.local_shape.end());
    entry->mutable_global_offset()->Assign(tensor.global_offset.begin(), tensor.global_offset.end());
    if (tensor.flattened_range) {
      entry->set_flat_start(tensor.flattened_range->start);
      entry->set_flat_stop(tensor.flattened_range->stop);
    }
  }
  const StreamLimits limits{options_.bytes_per_second_min, options_.patience,
                            SteadyClock::SteadyNow() + links.session().limit};
  KINTSUGI_RETURN_IF_ERROR(SendFrame(*link, FrameKind::kSnapshotOffer, offer.SerializeAsString(), limits.deadline));
  return SendState(*link, snapshot.Items(), order.step,
                   {.checksum = options_.checksum, .objects = snapshot.objects, .limits = limits});
}

void Snapshots::Copy(SnapshotLinks& links, const SnapshotOrder& order) {
  const ThreadCost cost;
  SnapshotReport report{.owner = links.session().self, .step = order.step};
  Status status;
  try {
    status = CopyOwn(links, order, &report);
    DoneReading();
    if (status.ok() && order.partner.value() >= 0) {
      status = Send(links, order, *own_);
      if (!status.ok()) links.DropOut();
    }
  } catch (const std::exception& e) {
    status = {StatusCode::kInternal, e.what()};
  }
  own_.reset();
  report.code = status.code();
  report.text = status.message();
  report.cost = cost.Spent();
  if (!links.aborted()) links.session().report(std::move(report));
}

}  // namespace kintsugi
