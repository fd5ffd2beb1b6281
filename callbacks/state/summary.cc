#include "callbacks/state/summary.h"

#include <map>
#include <set>

#include "callbacks/state/key.h"
#include "runtime/base/result.h"

namespace kintsugi {
namespace {

template <typename Entry>
using ByKey = std::map<std::string, const Entry*>;

template <typename Entry>
Result<ByKey<Entry>> Index(const std::vector<Entry>& entries, const std::string& what, Rank rank) {
  ByKey<Entry> by_key;
  for (const Entry& entry : entries)
    if (!by_key.emplace(entry.key, &entry).second)
      return Status(
          StatusCode::kInvalidArgument,
          what + " '" + PrintableKey(entry.key) + "' appears twice in what rank " + rank.ToString() + " registered");
  return by_key;
}

std::string Describe(const ObjectSummary& object) {
  return "object " + PrintableKey(object.key) + " as " +
         (object.kind == ObjectKind::kMirrored ? "mirrored" : "derived");
}

constexpr size_t kDifferencesTold = 8;

Status Tell(const std::vector<std::string>& differences) {
  if (differences.empty()) return Status::Ok();
  std::string text;
  for (size_t i = 0; i < differences.size() && i < kDifferencesTold; ++i) text += (i ? "; " : "") + differences[i];
  if (differences.size() > kDifferencesTold)
    text += "; and " + std::to_string(differences.size() - kDifferencesTold) + " more differences";
  return {StatusCode::kInvalidArgument, text};
}

// Equal entries under equal keys; the message tells what differs. `matters` says whether an entry belongs to the
// comparison.
template <typename Entry, typename Matters>
Status Compare(const std::string& what, Rank rank_a, const std::vector<Entry>& a, Rank rank_b,
               const std::vector<Entry>& b, Matters matters) {
  KINTSUGI_ASSIGN_OR_RETURN(const ByKey<Entry> in_a, Index(a, what, rank_a));
  KINTSUGI_ASSIGN_OR_RETURN(const ByKey<Entry> in_b, Index(b, what, rank_b));
  std::vector<std::string> differences;
  const auto missing = [&](const std::string& key, Rank has, Rank lacks) {
    differences.push_back(what + " '" + PrintableKey(key) + "' is registered on rank " + has.ToString() +
                          " but missing on its replica, rank " + lacks.ToString());
  };
  for (const auto& [key, entry] : in_a) {
    const auto other = in_b.find(key);
    if (other == in_b.end()) {
      if (matters(*entry)) missing(key, rank_a, rank_b);
      continue;
    }
    if (*entry == *other->second || (!matters(*entry) && !matters(*other->second))) continue;
    differences.push_back("replicas differ: rank " + rank_a.ToString() + " registered " + Describe(*entry) + ", rank " +
                          rank_b.ToString() + " registered " + Describe(*other->second));
  }
  for (const auto& [key, entry] : in_b)
    if (matters(*entry) && !in_a.count(key)) missing(key, rank_b, rank_a);
  return Tell(differences);
}

}  // namespace

TensorSummary SummaryOf(const ShardedTensor& tensor) {
  return {tensor.key,           tensor.dtype,           tensor.global_shape, tensor.local_shape,
          tensor.global_offset, tensor.flattened_range, tensor.layout};
}

ShardedTensor ShardOf(const TensorSummary& summary) {
  ShardedTensor tensor;
  tensor.key = summary.key;
  tensor.dtype = summary.dtype;
  tensor.global_shape = summary.global_shape;
  tensor.local_shape = summary.local_shape;
  tensor.global_offset = summary.global_offset;
  tensor.flattened_range = summary.flattened_range;
  tensor.layout = summary.layout;
  return tensor;
}

std::string Describe(const TensorSummary& summary) {
  return Describe(ShardOf(summary)) + " of layout " + std::to_string(summary.layout);
}

namespace {

// Replicas of one tensor may stand at other places of a grid: both must have cells of it, not the same ones.
std::vector<ObjectSummary> WithoutCells(const std::vector<ObjectSummary>& objects) {
  std::vector<ObjectSummary> named;
  std::set<std::string> grids;
  for (ObjectSummary object : objects) {
    const std::string grid(GridName(object.key));
    if (!grid.empty() && !grids.insert(grid).second) continue;
    if (!grid.empty()) object.key = grid + " (a cell of a grid)";
    named.push_back(std::move(object));
  }
  return named;
}

}  // namespace

Status CompareReplicas(int layout, Rank rank_a, const RegistrySummary& a, Rank rank_b, const RegistrySummary& b) {
  KINTSUGI_RETURN_IF_ERROR(Compare("tensor", rank_a, a.tensors, rank_b, b.tensors,
                                   [layout](const TensorSummary& tensor) { return tensor.layout == layout; }));
  return Compare("object", rank_a, WithoutCells(a.objects), rank_b, WithoutCells(b.objects),
                 [](const ObjectSummary&) { return true; });
}

}  // namespace kintsugi
