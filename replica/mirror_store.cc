#include "replica/mirror_store.h"

#include <utility>

#include "kernels/host_checksum.h"
#include "replica/stream/manifest.pb.h"

namespace kintsugi {
namespace {

constexpr uint64_t kMirrorMagic = 0x6b696e74734d6972;
constexpr uint64_t kMirroredBytesMax = 1 << 30;

struct Header {
  uint64_t magic = kMirrorMagic;
  uint64_t step = 0;
  uint64_t size_bytes = 0;
  uint64_t hash = 0;
};

Status Give(Link& link, Step step, const std::vector<uint8_t>& bytes, TimePoint deadline) {
  const Header header{.step = step.value(), .size_bytes = bytes.size(), .hash = HashBytes(bytes.data(), bytes.size())};
  KINTSUGI_RETURN_IF_ERROR(SendBytes(link, &header, sizeof(header), deadline));
  return bytes.empty() ? Status::Ok() : SendBytes(link, bytes.data(), bytes.size(), deadline);
}

Status Take(Link& link, Step step, std::vector<uint8_t>* bytes, TimePoint deadline) {
  Header header;
  KINTSUGI_RETURN_IF_ERROR(link.Receive(&header, sizeof(header), deadline));
  const std::string peer = "mirrored objects of rank " + link.peer().ToString();
  if (header.magic != kMirrorMagic || header.size_bytes > kMirroredBytesMax)
    return {StatusCode::kDataLoss, peer + ": the message is none"};
  if (header.step != step.value())
    return {StatusCode::kFailedPrecondition,
            peer + " are of step " + std::to_string(header.step) + ", here the step is " + step.ToString()};
  bytes->resize(header.size_bytes);
  if (header.size_bytes > 0) KINTSUGI_RETURN_IF_ERROR(link.Receive(bytes->data(), bytes->size(), deadline));
  if (HashBytes(bytes->data(), bytes->size()) != header.hash) return {StatusCode::kDataLoss, peer + " arrived damaged"};
  return Status::Ok();
}

}  // namespace

void MirrorStore::Put(Rank rank, Step step, std::vector<uint8_t> bytes) {
  const MutexLock lock(mutex_);
  if (refreshed_ && refreshed_->first == rank) refreshed_.reset();
  Keep(rank, step, std::move(bytes));
}

void MirrorStore::Refresh(Rank self, Step step, std::vector<uint8_t> bytes) {
  const MutexLock lock(mutex_);
  Keep(self, step, std::move(bytes));
  refreshed_ = {self, step};
}

void MirrorStore::Keep(Rank rank, Step step, std::vector<uint8_t> bytes) {
  auto& steps = by_rank_[rank];
  steps.erase(steps.upper_bound(step), steps.end());
  steps[step] = std::move(bytes);
  if (steps.size() > kSteps) steps.erase(steps.begin());
}

bool MirrorStore::IsRefreshed(Rank rank, Step step) const {
  const MutexLock lock(mutex_);
  return refreshed_ == std::pair(rank, step);
}

std::optional<std::vector<uint8_t>> MirrorStore::Get(Rank rank, Step step) const {
  const MutexLock lock(mutex_);
  const auto of_rank = by_rank_.find(rank);
  if (of_rank == by_rank_.end()) return std::nullopt;
  const auto of_step = of_rank->second.find(step);
  return of_step == of_rank->second.end() ? std::nullopt : std::optional(of_step->second);
}

std::vector<uint8_t> MirrorStore::Pack(const std::vector<Rank>& ranks, Step step) const {
  stream::MirroredObjects packed;
  for (Rank rank : ranks) {
    const auto bytes = Get(rank, step);
    if (!bytes) continue;
    auto* entry = packed.add_entries();
    entry->set_rank(rank.value());
    entry->set_step(step.value());
    entry->set_data(bytes->data(), bytes->size());
  }
  std::vector<uint8_t> out(packed.ByteSizeLong());
  packed.SerializeToArray(out.data(), static_cast<int>(out.size()));
  return out;
}

Status MirrorStore::Unpack(const std::vector<uint8_t>& packed, Step step) {
  stream::MirroredObjects message;
  if (!message.ParseFromArray(packed.data(), static_cast<int>(packed.size())))
    return {StatusCode::kDataLoss, "the mirrored objects of a repair cannot be read"};
  for (const auto& entry : message.entries()) {
    if (entry.step() != step.value())
      return {StatusCode::kDataLoss, "the mirrored objects of rank " + std::to_string(entry.rank()) + " are of step " +
                                         std::to_string(entry.step()) + ", the repair is at " + step.ToString()};
    if (const Rank rank(entry.rank()); !IsRefreshed(rank, step))
      Put(rank, step, {entry.data().begin(), entry.data().end()});
  }
  return Status::Ok();
}

Status ExchangeMirrored(Link& link, Rank self, Step step, const std::vector<uint8_t>& mine,
                        std::vector<uint8_t>* theirs, TimePoint deadline) {
  if (self < link.peer()) {
    KINTSUGI_RETURN_IF_ERROR(Give(link, step, mine, deadline));
    return Take(link, step, theirs, deadline);
  }
  KINTSUGI_RETURN_IF_ERROR(Take(link, step, theirs, deadline));
  return Give(link, step, mine, deadline);
}

}  // namespace kintsugi
