#include "replica/mirror_store.h"

#include <utility>

#include "replica/stream/manifest.pb.h"

namespace kintsugi {
void MirrorStore::Put(Rank rank, Step step, MirroredObjects objects) {
  const MutexLock lock(mutex_);
  if (refreshed_ && refreshed_->first == rank) refreshed_.reset();
  Keep(rank, step, std::move(objects));
}

void MirrorStore::Refresh(Rank self, Step step, MirroredObjects objects) {
  const MutexLock lock(mutex_);
  Keep(self, step, std::move(objects));
  refreshed_ = {self, step};
}

void MirrorStore::Keep(Rank rank, Step step, MirroredObjects objects) {
  auto& steps = by_rank_[rank];
  if (!steps.empty()) objects = ShareUnchanged(std::move(objects), steps.rbegin()->second);
  steps.erase(steps.upper_bound(step), steps.end());
  steps[step] = std::move(objects);
  while (steps.size() > kSteps) steps.erase(steps.begin());
}

bool MirrorStore::IsRefreshed(Rank rank, Step step) const {
  const MutexLock lock(mutex_);
  return refreshed_ == std::pair(rank, step);
}

std::optional<MirroredObjects> MirrorStore::Get(Rank rank, Step step) const {
  const MutexLock lock(mutex_);
  const auto of_rank = by_rank_.find(rank);
  if (of_rank == by_rank_.end()) return std::nullopt;
  const auto of_step = of_rank->second.find(step);
  return of_step == of_rank->second.end() ? std::nullopt : std::optional(of_step->second);
}

std::vector<RankObjects> MirrorStore::Known(const std::vector<Rank>& ranks, Step step) const {
  std::vector<RankObjects> known;
  for (Rank rank : ranks)
    if (auto objects = Get(rank, step)) known.push_back({rank, std::move(*objects)});
  return known;
}

void MirrorStore::Take(Step step, std::vector<RankObjects> known) {
  for (RankObjects& of_rank : known)
    if (!IsRefreshed(of_rank.rank, step)) Put(of_rank.rank, step, std::move(of_rank.objects));
}

std::vector<uint8_t> MirrorStore::Pack(const std::vector<Rank>& ranks, Step step) const {
  stream::MirroredObjects packed;
  for (const RankObjects& of_rank : Known(ranks, step)) {
    auto* entry = packed.add_entries();
    entry->set_rank(of_rank.rank.value());
    entry->set_step(step.value());
    const std::vector<uint8_t> bytes = JoinMirrored(of_rank.objects);
    entry->set_data(bytes.data(), bytes.size());
  }
  std::vector<uint8_t> out(packed.ByteSizeLong());
  packed.SerializeToArray(out.data(), static_cast<int>(out.size()));
  return out;
}

namespace {

Result<std::vector<RankObjects>> Parse(const std::vector<uint8_t>& packed, Step step) {
  stream::MirroredObjects message;
  if (!message.ParseFromArray(packed.data(), static_cast<int>(packed.size())))
    return Status(StatusCode::kDataLoss, "the mirrored objects of a repair cannot be read");
  std::vector<RankObjects> known;
  for (const auto& entry : message.entries()) {
    if (entry.step() != step.value())
      return Status(StatusCode::kDataLoss, "the mirrored objects of rank " + std::to_string(entry.rank()) +
                                               " are of step " + std::to_string(entry.step()) + ", the repair is at " +
                                               step.ToString());
    KINTSUGI_ASSIGN_OR_RETURN(auto objects, SplitMirrored({entry.data().begin(), entry.data().end()}));
    known.push_back({Rank(entry.rank()), std::move(objects)});
  }
  return known;
}

}  // namespace

Status MirrorStore::Unpack(const std::vector<uint8_t>& packed, Step step) {
  KINTSUGI_ASSIGN_OR_RETURN(auto known, Parse(packed, step));
  Take(step, std::move(known));
  return Status::Ok();
}

Status MirrorStore::Recall(Rank owner, const std::vector<uint8_t>& packed, Step step) {
  KINTSUGI_ASSIGN_OR_RETURN(auto known, Parse(packed, step));
  const MutexLock lock(mutex_);
  for (RankObjects& of_rank : known) {
    auto& steps = by_rank_[of_rank.rank];
    if (of_rank.rank == owner && refreshed_ != std::pair(owner, step)) steps.erase(step);
    steps.emplace(step, std::move(of_rank.objects));
  }
  return Status::Ok();
}

}  // namespace kintsugi
