#include "integrations/examples/byte_lm/gloo_process_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace kintsugi::byte_lm {

// One Gloo group behind the trainer's interface; a group of one needs no Gloo.
class GlooProcessGroups::GlooCollectives final : public Collectives {
 public:
  explicit GlooCollectives(std::shared_ptr<GlooGroup> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  Status AllReduceSum(float* data, size_t count) override { return group_->AllReduceSum(data, count); }
  Status AllGather(const float* mine, size_t count_each, float* all) override {
    return group_->AllGather(mine, count_each, all);
  }

 private:
  const std::shared_ptr<GlooGroup> group_;
};

// Groups of the same ranks are one: connecting and ending a group costs time, and an incident pays for both.
struct GlooProcessGroups::Connected {
  std::map<std::vector<int>, std::shared_ptr<GlooGroup>> groups;  // by their members
  std::shared_ptr<GlooGroup> world;
  std::unique_ptr<Collectives> data_parallel, tensor_parallel, shard;

  std::unique_ptr<Collectives> Of(const std::vector<int>& ranks) const {
    if (ranks.size() == 1) return std::make_unique<SingleRank>();
    return std::make_unique<GlooCollectives>(groups.at(ranks));
  }
};

Status GlooProcessGroups::Connect(HandlerContext& call) {
  End();
  KINTSUGI_ASSIGN_OR_RETURN(GlooDevice device, CreateGlooDevice());
  {
    std::lock_guard lock(mutex_);
    device_ = device;
  }
  Arm();
  std::vector<int> world(static_cast<size_t>(call.world_size));
  std::iota(world.begin(), world.end(), 0);
  std::vector<GlooMembers> wanted = {{"world", world}};  // the barrier's too
  for (const auto& [name, ranks] :
       {std::pair("dp", layout_.DataParallelGroup()), std::pair("tp", layout_.TensorParallelGroup()),
        std::pair("shard", layout_.ShardGroup())}) {
    const bool known =
        std::any_of(wanted.begin(), wanted.end(), [&](const GlooMembers& other) { return other.ranks == ranks; });
    if (ranks.size() > 1 && !known) wanted.push_back({name, ranks, GlooPairs::kRing});
  }
  // Groups of the same kind on different ranks have different members, and a group's name is one of its rank's own.
  const GlooJoin join{.prefix = "byte_lm/" + call.generation.ToString(),
                      .rank = call.Number(),
                      .deadline = call.deadline,
                      .device = device,
                      .cancel = call.cancel,
                      .unreached = &call.unreached};
  auto made = GlooGroup::ConnectAll(*call.store, join, wanted);
  for (UnreachedPeer& peer : call.unreached) peer.rank = call.RankOf(peer.rank.value());  // groups go by numbers
  KINTSUGI_ASSIGN_OR_RETURN(auto groups, std::move(made));
  auto connected = std::make_shared<Connected>();
  for (size_t i = 0; i < groups.size(); ++i) connected->groups[wanted[i].ranks] = std::move(groups[i]);
  connected->world = connected->groups.at(world);
  connected->data_parallel = connected->Of(layout_.DataParallelGroup());
  connected->tensor_parallel = connected->Of(layout_.TensorParallelGroup());
  connected->shard = connected->Of(layout_.ShardGroup());
  connected_ = std::move(connected);
  return Status::Ok();
}

void GlooProcessGroups::End() {
  Abort();
  connected_.reset();
}

void GlooProcessGroups::Abort() {
  GlooDevice device;
  {
    std::lock_guard lock(mutex_);
    device = device_;
  }
  ProcessGroups::Abort();
  if (device) AbortGlooDevice(device);
}

Groups GlooProcessGroups::groups() {
  return {connected_->data_parallel.get(), connected_->tensor_parallel.get(), connected_->shard.get()};
}

Status GlooProcessGroups::Barrier() { return connected_->world->Barrier(); }

}  // namespace kintsugi::byte_lm
