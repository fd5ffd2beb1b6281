#include "runtime/core/save_balance.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/base/check.h"

namespace kintsugi::core {

uint64_t RegisteredBytes(const RegistrySummary& registry, std::optional<int> layout) {
  uint64_t bytes = 0;
  for (const TensorSummary& tensor : registry.tensors) {
    if (layout && tensor.layout != *layout) continue;
    uint64_t elements = 1;
    for (const int64_t length : tensor.local_shape) elements *= static_cast<uint64_t>(length);
    if (tensor.flattened_range)
      elements = static_cast<uint64_t>(tensor.flattened_range->stop - tensor.flattened_range->start);
    bytes += elements * DTypeSize(tensor.dtype);
  }
  return bytes;
}

std::vector<SaveAssignment> BalanceSave(std::vector<SaveAssignment> plan, const IncidentFacts& incident,
                                        const ShardBytes& bytes_of) {
  struct Work {
    SaveAssignment* assignment;
    std::vector<Rank> writers;
    uint64_t bytes;
  };
  std::vector<Work> works;
  for (SaveAssignment& assignment : plan) {
    Work work{&assignment, {}, bytes_of(assignment.writer, assignment.entry.layout)};
    const bool is_fit = incident.At(assignment.writer).can_write;
    for (const Rank holder : assignment.entry.holders) {
      const RankFacts& rank = incident.At(holder);
      if (rank.condition == Condition::kGood && rank.can_write == is_fit) work.writers.push_back(holder);
    }
    works.push_back(std::move(work));
  }
  std::stable_sort(works.begin(), works.end(), [](const Work& a, const Work& b) {
    return std::tuple(a.writers.size(), b.bytes) < std::tuple(b.writers.size(), a.bytes);
  });
  std::map<Rank, uint64_t> load;
  for (const Work& work : works) {
    KINTSUGI_CHECK(!work.writers.empty(), "layout " + std::to_string(work.assignment->entry.layout) +
                                              " is to be written by rank " + work.assignment->writer.ToString() +
                                              ", which does not hold it");
    const Rank writer = *std::min_element(work.writers.begin(), work.writers.end(), [&](Rank a, Rank b) {
      return std::tuple(load[a], a) < std::tuple(load[b], b);
    });
    work.assignment->writer = writer;
    load[writer] += work.bytes;
  }
  return plan;
}

std::vector<SaveAssignment> StoreOwnObjects(std::vector<SaveAssignment> plan, const IncidentFacts& incident) {
  for (const RankFacts& rank : incident.ranks) {
    if (!rank.objects_ahead || rank.condition != Condition::kGood) continue;
    for (SaveAssignment& assignment : plan) std::erase(assignment.entry.objects_of, rank.rank);
    const auto own = std::find_if(plan.begin(), plan.end(),
                                  [&](const SaveAssignment& assignment) { return assignment.writer == rank.rank; });
    if (own != plan.end())
      own->entry.objects_of.push_back(rank.rank);
    else
      plan.push_back({rank.rank, {kObjectsAlone, {rank.rank}, {rank.rank}}});
  }
  return plan;
}

}  // namespace kintsugi::core
