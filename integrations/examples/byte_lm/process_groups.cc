#include "integrations/examples/byte_lm/process_groups.h"

#include <algorithm>

namespace kintsugi::byte_lm {

// One Gloo group behind the trainer's interface; a group of one needs no Gloo.
class ProcessGroups::GlooCollectives final : public Collectives {
 public:
  explicit GlooCollectives(std::unique_ptr<GlooGroup> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  Status AllReduceSum(float* data, size_t count) override { return group_->AllReduceSum(data, count); }
  Status AllGather(const float* mine, size_t count_each, float* all) override {
    return group_->AllGather(mine, count_each, all);
  }

 private:
  std::unique_ptr<GlooGroup> group_;
};

struct ProcessGroups::Connected {
  std::unique_ptr<GlooGroup> world;
  std::unique_ptr<Collectives> data_parallel, tensor_parallel, shard;
};

Status ProcessGroups::Connect(HandlerContext& call) {
  Destroy();
  KINTSUGI_ASSIGN_OR_RETURN(GlooDevice device, AbortableDevice::Create());
  {
    std::lock_guard lock(mutex_);
    device_ = device;
    aborted_ = false;
  }
  const std::string generation = "byte_lm/" + call.generation.ToString() + "/";
  const auto connect = [&](const std::string& name, const std::vector<int>& ranks) -> Result<std::unique_ptr<GlooGroup>> {
    GlooGroupOptions options;
    options.prefix = generation + name + std::to_string(ranks.front());
    options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), call.rank.value()) - ranks.begin());
    options.size = static_cast<int>(ranks.size());
    options.deadline = call.deadline;
    options.device = device;
    options.cancel = call.cancel;
    return GlooGroup::Connect(*call.store, options);
  };
  const auto collectives = [&](const std::string& name,
                               const std::vector<int>& ranks) -> Result<std::unique_ptr<Collectives>> {
    if (ranks.size() == 1) return std::unique_ptr<Collectives>(std::make_unique<SingleRank>());
    KINTSUGI_ASSIGN_OR_RETURN(std::unique_ptr<GlooGroup> group, connect(name, ranks));
    return std::unique_ptr<Collectives>(std::make_unique<GlooCollectives>(std::move(group)));
  };

  auto connected = std::make_shared<Connected>();
  std::vector<int> world(static_cast<size_t>(call.world_size));
  for (int r = 0; r < call.world_size; ++r) world[static_cast<size_t>(r)] = r;
  KINTSUGI_ASSIGN_OR_RETURN(connected->world, connect("world", world));
  KINTSUGI_ASSIGN_OR_RETURN(connected->data_parallel, collectives("dp", layout_.DataParallelGroup()));
  KINTSUGI_ASSIGN_OR_RETURN(connected->tensor_parallel, collectives("tp", layout_.TensorParallelGroup()));
  KINTSUGI_ASSIGN_OR_RETURN(connected->shard, collectives("shard", layout_.ShardGroup()));
  connected_ = std::move(connected);
  return Status::Ok();
}

void ProcessGroups::Destroy() {
  Abort();
  connected_.reset();
}

void ProcessGroups::Abort() {
  GlooDevice device;
  {
    std::lock_guard lock(mutex_);
    device = device_;
    aborted_ = true;
  }
  changed_.notify_all();
  if (device) device->Abort();
}

Groups ProcessGroups::groups() {
  return {connected_->data_parallel.get(), connected_->tensor_parallel.get(), connected_->shard.get()};
}

Status ProcessGroups::Barrier() { return connected_->world->Barrier(); }

Status ProcessGroups::AwaitAbort() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return aborted_; });
  return {StatusCode::kCancelled, "the groups were aborted"};
}

}  // namespace kintsugi::byte_lm
