// The partner's side of an in-memory snapshot: what comes in is kept for its owner.
#include "replica/snapshot/snapshot_links.h"
#include "replica/snapshot/snapshots.h"
#include "replica/snapshot/thread_cost.h"
#include "replica/stream/manifest.pb.h"
#include "replica/stream/stream_wire.h"

namespace kintsugi {
namespace {

// Between two snapshots of an owner; whatever ends the generation ends the wait.
constexpr Duration kNextOfferLimit = std::chrono::hours(24 * 365);
constexpr uint64_t kSnapshotBytesMax = uint64_t{1} << 46;

Result<std::vector<SnapshotTensor>> TensorsOf(const stream::SnapshotOffer& offer, Rank owner) {
  std::vector<SnapshotTensor> tensors;
  uint64_t bytes = 0;
  for (const auto& entry : offer.tensors()) {
    if (entry.size_bytes() > kSnapshotBytesMax || (bytes += entry.size_bytes()) > kSnapshotBytesMax)
      return Status(StatusCode::kDataLoss, "rank " + owner.ToString() + " offers a snapshot of more than " +
                                               std::to_string(kSnapshotBytesMax) + " bytes");
    tensors.push_back({{.key = entry.key(),
                        .dtype = static_cast<DType>(entry.dtype()),
                        .global_shape = {entry.global_shape().begin(), entry.global_shape().end()},
                        .local_shape = {entry.local_shape().begin(), entry.local_shape().end()},
                        .global_offset = {entry.global_offset().begin(), entry.global_offset().end()},
                        .layout = entry.layout()},
                       entry.size_bytes()});
    if (entry.has_flat_stop()) tensors.back().flattened_range = {entry.flat_start(), entry.flat_stop()};
  }
  return tensors;
}

}  // namespace

void Snapshots::Receive(const std::shared_ptr<SnapshotLinks>& links, Rank owner, const std::shared_ptr<Link>& link) {
  for (;;) {
    const auto frame = ReceiveFrame(*link, SteadyClock::SteadyNow() + kNextOfferLimit);
    stream::SnapshotOffer offer;
    if (!frame.ok() || frame->kind != FrameKind::kSnapshotOffer || !offer.ParseFromString(frame->body) ||
        offer.step() == 0 || offer.step() == offer.keep())
      break;
    const ThreadCost cost;
    SnapshotReport report{.owner = owner, .step = Step(offer.step())};
    Status status;
    try {
      status = ReceiveOne(*links, owner, *link, frame->body, &report);
    } catch (const std::exception& e) {
      status = {StatusCode::kInternal, e.what()};
    }
    report.code = status.code();
    report.text = status.message();
    report.cost = cost.Spent();
    if (links->aborted()) return;
    links->session().report(std::move(report));
    if (!status.ok()) break;
  }
  links->DropIn(owner);
}

Status Snapshots::ReceiveOne(SnapshotLinks& links, Rank owner, Link& link, const std::string& body,
                             SnapshotReport* report) {
  stream::SnapshotOffer offer;
  offer.ParseFromString(body);
  KINTSUGI_ASSIGN_OR_RETURN(const auto tensors, TensorsOf(offer, owner));
  KINTSUGI_ASSIGN_OR_RETURN(const auto kept, store_.Begin(owner, report->step, Step(offer.keep()), tensors));
  ReceiveLedger ledger;
  StreamResult result;
  Status status = ReceiveState(
      {&link}, kept->Items(), report->step, ledger,
      {.limits = {options_.bytes_per_second_min, options_.patience, SteadyClock::SteadyNow() + links.session().limit}},
      &result);
  std::optional<std::map<int, uint64_t>> digests;
  if (status.ok()) digests = kept->Digests(links.aborted());
  if (status.ok() && !digests) status = {StatusCode::kCancelled, "an incident has begun"};
  if (!status.ok()) {
    store_.Abandon(owner);
    return status;
  }
  kept->objects = std::move(result.objects.front());
  report->digests = kept->digests = *digests;
  store_.Finish(owner);
  return Status::Ok();
}

}  // namespace kintsugi
