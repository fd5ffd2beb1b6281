#include "integrations/examples/byte_lm/device/nccl_process_groups.h"

#include <algorithm>
#include <numeric>

namespace kintsugi::byte_lm::device {

NcclProcessGroups::~NcclProcessGroups() { End(); }

std::vector<int> NcclProcessGroups::Ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Status NcclProcessGroups::Connect(HandlerContext& call) {
  KINTSUGI_RETURN_IF_ERROR(Destroy(call.deadline));
  world_size_ = call.world_size;
  // Every rank names its groups in this order, which NCCL's init in one group asks for.
  std::vector<std::vector<int>> wanted = {Ranks(call.world_size)};
  for (const auto& ranks : {layout_.DataParallelGroup(), layout_.TensorParallelGroup(), layout_.ShardGroup()})
    if (ranks.size() > 1 && std::find(wanted.begin(), wanted.end(), ranks) == wanted.end()) wanted.push_back(ranks);
  std::vector<NcclGroup> groups;
  for (const std::vector<int>& ranks : wanted) {
    NcclGroup group;
    for (int rank : ranks) {
      group.name += (group.name.empty() ? "" : "-") + std::to_string(rank);
      group.members.push_back(Rank(rank));
    }
    groups.push_back(std::move(group));
  }
  Arm();
  NcclGroupsOptions options;
  options.generation = call.generation;
  options.self = call.rank;
  options.deadline = call.deadline;
  options.cancel = call.cancel;
  auto connected = NcclGroups::Connect(*call.store, api_, compute_.stream().device_pointer(), groups, options);
  if (!connected.ok()) return connected.status();
  const std::shared_ptr<NcclGroups> made = std::move(connected).value();
  for (size_t i = 0; i < wanted.size(); ++i) {
    KINTSUGI_ASSIGN_OR_RETURN(const size_t index, made->Find(groups[i].name));
    const auto place = std::find(wanted[i].begin(), wanted[i].end(), call.rank.value()) - wanted[i].begin();
    of_[wanted[i]] = std::make_unique<NcclCollectives>(api_, made->communicators(), index, static_cast<int>(place),
                                                       static_cast<int>(wanted[i].size()), compute_);
  }
  compute_.stream().Watch([communicators = &made->communicators()] {
    for (size_t i = 0; i < communicators->size(); ++i) KINTSUGI_RETURN_IF_ERROR(communicators->AsyncError(i));
    return Status::Ok();
  });
  std::lock_guard lock(mutex_);
  connected_ = made;
  return Status::Ok();
}

void NcclProcessGroups::End() {
  Abort();
  compute_.stream().Watch({});
  std::shared_ptr<NcclGroups> ended;
  {
    std::lock_guard lock(mutex_);
    ended = std::move(connected_);
  }
  // Waited for here: an Abort on another thread may hold it a moment longer.
  if (ended) static_cast<void>(ended->communicators().WaitAborted(kNcclAbortLimit));
}

Status NcclProcessGroups::Destroy(TimePoint deadline) {
  End();
  KINTSUGI_RETURN_IF_ERROR(compute_.status());
  KINTSUGI_RETURN_IF_ERROR(compute_.stream().Drain(deadline));
  of_.clear();  // their arrays may be written until now
  return Status::Ok();
}

void NcclProcessGroups::Abort() {
  compute_.stream().Abort();
  std::shared_ptr<NcclGroups> connected;
  {
    std::lock_guard lock(mutex_);
    connected = connected_;
  }
  if (connected) connected->Abort();
  ProcessGroups::Abort();
}

Groups NcclProcessGroups::groups() {
  return {Of(layout_.DataParallelGroup()), Of(layout_.TensorParallelGroup()), Of(layout_.ShardGroup())};
}

Collectives* NcclProcessGroups::Of(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return &alone_;
  return of_.at(ranks).get();
}

}  // namespace kintsugi::byte_lm::device
