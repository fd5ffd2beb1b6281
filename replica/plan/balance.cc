#include "replica/plan/balance.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "runtime/base/check.h"

namespace kintsugi::plan {
namespace {

// Steps of the refinement for each shard.
constexpr uint64_t kStepsPerShard = 64;
constexpr uint64_t kStepsMin = 1 << 16;

// (load when it was written down, rank): the smallest first.
using Entry = std::pair<int64_t, int32_t>;
using Heap = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

class Refinement {
 public:
  Refinement(const SharedShards& list, Assignment* assignment)
      : list_(list),
        assignment_(*assignment),
        of_rank_(assignment->load.size()),
        steps_left_(std::max<uint64_t>(kStepsMin, kStepsPerShard * list.shards().size())) {
    for (uint32_t i = 0; i < list.shards().size(); ++i) of_rank_[Rank(i)].push_back(i);
  }

  // One step down for the largest load; false: none was found.
  bool Improve() {
    const auto& load = assignment_.load;
    const auto top = static_cast<size_t>(std::max_element(load.begin(), load.end()) - load.begin());
    best_ = {load[top]};
    for (uint32_t shard : of_rank_[top])
      for (int32_t holder : list_.HoldersOf(list_.shards()[shard])) {
        if (steps_left_ == 0) break;
        if (static_cast<size_t>(holder) != top) Try(shard, static_cast<size_t>(holder), top);
      }
    if (best_.largest == load[top]) return false;
    Move(best_.shard, best_.to);
    if (best_.has_second) Move(best_.second, best_.second_to);
    return steps_left_ > 0;
  }

 private:
  struct Change {
    int64_t largest = 0;  // of the loads that change, afterwards
    uint32_t shard = 0, second = 0;
    size_t to = 0, second_to = 0;
    bool has_second = false;
  };

  size_t Rank(uint32_t shard) const { return static_cast<size_t>(assignment_.rank[shard]); }
  int64_t Bytes(uint32_t shard) const { return list_.shards()[shard].bytes; }

  // `shard` leaves the top for `to`; alone, or `to` gives one of its own to the top or to a third rank.
  void Try(uint32_t shard, size_t to, size_t top) {
    const auto& load = assignment_.load;
    const int64_t bytes = Bytes(shard);
    Consider({std::max(load[top] - bytes, load[to] + bytes), shard, 0, to});
    for (uint32_t second : of_rank_[to])
      for (int32_t holder : list_.HoldersOf(list_.shards()[second])) {
        if (steps_left_ == 0) return;
        const auto third = static_cast<size_t>(holder);
        const int64_t back = Bytes(second);
        if (third == to) continue;
        const int64_t at_third =
            third == top ? load[top] - bytes + back : std::max(load[top] - bytes, load[third] + back);
        Consider({std::max(load[to] + bytes - back, at_third), shard, second, to, third, true});
      }
  }

  void Consider(const Change& change) {
    if (steps_left_ > 0) --steps_left_;
    if (change.largest < best_.largest) best_ = change;
  }

  void Move(uint32_t shard, size_t to) {
    auto& from_list = of_rank_[Rank(shard)];
    const auto at = std::find(from_list.begin(), from_list.end(), shard);
    KINTSUGI_CHECK(at != from_list.end() && Rank(shard) != to, "a shard leaves the rank that has it for another");
    from_list.erase(at);
    of_rank_[to].push_back(shard);
    assignment_.load[Rank(shard)] -= Bytes(shard);
    assignment_.load[to] += Bytes(shard);
    assignment_.rank[shard] = static_cast<int32_t>(to);
  }

  const SharedShards& list_;
  Assignment& assignment_;
  std::vector<std::vector<uint32_t>> of_rank_;
  uint64_t steps_left_;
  Change best_;
};

}  // namespace

// A rank's load only grows, so a heap's first entry is right once it says the rank's load of now; older ones are
// written down again when they come up.
Assignment AssignInOrder(const SharedShards& shards, int32_t ranks, const std::vector<uint32_t>& order) {
  Assignment result{std::vector<int32_t>(order.size()), std::vector<int64_t>(static_cast<size_t>(ranks))};
  KINTSUGI_CHECK(order.size() == shards.shards().size(), "each shard has a turn");
  std::vector<Heap> heaps(shards.sets().size());
  for (uint32_t number : order) {
    const SharedShard& shard = shards.shards()[number];
    Heap& heap = heaps[shard.holders];
    if (heap.empty())
      for (int32_t rank : shards.HoldersOf(shard)) heap.emplace(result.load[static_cast<size_t>(rank)], rank);
    KINTSUGI_CHECK(!heap.empty(), "somebody holds a shard that is assigned");
    while (true) {
      const auto [noted, rank] = heap.top();
      int64_t& load = result.load[static_cast<size_t>(rank)];
      heap.pop();
      if (noted == load) {
        load += shard.bytes;
        result.rank[number] = rank;
        heap.emplace(load, rank);
        break;
      }
      heap.emplace(load, rank);
    }
  }
  return result;
}

int64_t LargestLoad(const Assignment& assignment) {
  return assignment.load.empty() ? 0 : *std::max_element(assignment.load.begin(), assignment.load.end());
}

void Refine(const SharedShards& shards, Assignment* assignment) {
  if (assignment->load.empty()) return;
  Refinement refinement(shards, assignment);
  while (refinement.Improve()) {
  }
}

}  // namespace kintsugi::plan
