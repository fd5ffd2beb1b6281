#include "integrations/examples/byte_lm/gloo_process_groups.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <thread>
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

// Groups of the same ranks are one: connecting and ending a group costs milliseconds, and an incident pays for both.
struct GlooProcessGroups::Connected {
  struct Place {
    std::string name;
    Result<std::shared_ptr<GlooGroup>> group = Status(StatusCode::kInternal, "not connected");
  };
  std::map<std::vector<int>, Place> places;
  std::shared_ptr<GlooGroup> world;
  std::unique_ptr<Collectives> data_parallel, tensor_parallel, shard;

  void Want(const std::string& name, const std::vector<int>& ranks) { places.try_emplace(ranks, Place{name}); }
  std::unique_ptr<Collectives> Of(const std::vector<int>& ranks) const {
    if (ranks.size() == 1) return std::make_unique<SingleRank>();
    return std::make_unique<GlooCollectives>(*places.at(ranks).group);
  }
};

namespace {

// Runs every piece at once, the last one on this thread: each waits for other ranks, and none for another piece.
void RunTogether(std::vector<std::function<void()>> pieces) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i + 1 < pieces.size(); ++i) threads.emplace_back(std::move(pieces[i]));
  if (!pieces.empty()) pieces.back()();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Status GlooProcessGroups::Connect(HandlerContext& call) {
  End();
  KINTSUGI_ASSIGN_OR_RETURN(GlooDevice device, AbortableDevice::Create());
  {
    std::lock_guard lock(mutex_);
    device_ = device;
  }
  Arm();
  auto connected = std::make_shared<Connected>();
  std::vector<int> world(static_cast<size_t>(call.world_size));
  std::iota(world.begin(), world.end(), 0);
  connected->Want("world", world);
  for (const auto& [name, ranks] :
       {std::pair("dp", layout_.DataParallelGroup()), std::pair("tp", layout_.TensorParallelGroup()),
        std::pair("shard", layout_.ShardGroup())})
    if (ranks.size() > 1) connected->Want(name, ranks);

  std::vector<std::function<void()>> pieces;
  for (auto& entry : connected->places)
    pieces.push_back([&call, &device, &entry] {
      auto& [ranks, place] = entry;
      GlooGroupOptions options;
      options.prefix = "byte_lm/" + call.generation.ToString() + "/" + place.name + std::to_string(ranks.front());
      options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), call.rank.value()) - ranks.begin());
      options.size = static_cast<int>(ranks.size());
      options.deadline = call.deadline;
      options.device = device;
      options.cancel = call.cancel;
      Result<std::unique_ptr<GlooGroup>> group = GlooGroup::Connect(*call.store, options);
      if (group.ok()) {
        place.group = std::shared_ptr<GlooGroup>(std::move(group).value());
      } else {
        place.group = group.status();
        device->Abort();  // without this group the others are of no use
      }
    });
  RunTogether(std::move(pieces));
  // The first cause: what the abort ended comes after it.
  Status failed;
  for (const auto& [ranks, place] : connected->places)
    if (!place.group.ok() && (failed.ok() || failed.code() == StatusCode::kCancelled)) failed = place.group.status();
  KINTSUGI_RETURN_IF_ERROR(failed);
  connected->world = *connected->places.at(world).group;
  connected->data_parallel = connected->Of(layout_.DataParallelGroup());
  connected->tensor_parallel = connected->Of(layout_.TensorParallelGroup());
  connected->shard = connected->Of(layout_.ShardGroup());
  connected_ = std::move(connected);
  return Status::Ok();
}

void GlooProcessGroups::End() {
  Abort();
  if (!connected_) return;
  // Ending a connection waits for a turn of the device's thread (up to 10 ms each), so the groups end side by side.
  std::vector<std::shared_ptr<GlooGroup>> groups;
  for (auto& [ranks, place] : connected_->places) groups.push_back(*place.group);
  connected_.reset();
  std::vector<std::function<void()>> pieces;
  for (auto& group : groups) pieces.push_back([&group] { group.reset(); });
  RunTogether(std::move(pieces));
}

void GlooProcessGroups::Abort() {
  GlooDevice device;
  {
    std::lock_guard lock(mutex_);
    device = device_;
  }
  ProcessGroups::Abort();
  if (device) device->Abort();
}

Groups GlooProcessGroups::groups() {
  return {connected_->data_parallel.get(), connected_->tensor_parallel.get(), connected_->shard.get()};
}

Status GlooProcessGroups::Barrier() { return connected_->world->Barrier(); }

}  // namespace kintsugi::byte_lm
