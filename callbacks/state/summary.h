// RegistrySummary: what a rank registered, in the form that ranks exchange to compare.
//
// Source: a summary may have come from another process: nothing in it is trusted, every use checks.
// Errors: kInvalidArgument names the key, both ranks and both values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"

namespace kintsugi {

// Everything of a tensor but its memory.
struct TensorSummary {
  std::string key;
  DType dtype = DType::kFloat32;
  Shape global_shape, local_shape, global_offset;
  std::optional<FlatRange> flattened_range;
  int layout = 0;
  bool operator==(const TensorSummary&) const = default;
};

struct ObjectSummary {
  std::string key;
  ObjectKind kind = ObjectKind::kDerived;
  bool operator==(const ObjectSummary&) const = default;
};

struct RegistrySummary {
  std::vector<TensorSummary> tensors;  // sorted by key
  std::vector<ObjectSummary> objects;  // sorted by key
  bool operator==(const RegistrySummary&) const = default;
};

KINTSUGI_EXPORT TensorSummary SummaryOf(const ShardedTensor& tensor);
// Of such a tensor, without memory.
KINTSUGI_EXPORT ShardedTensor ShardOf(const TensorSummary& summary);
KINTSUGI_EXPORT std::string Describe(const TensorSummary& tensor);

// What two members of one replica group registered must be equal: the tensors of `layout`, and all objects (an object
// belongs to its rank, not to a layout, and a rank restores its partner's mirrored bytes with its own functions).
KINTSUGI_EXPORT Status CompareReplicas(int layout, Rank rank_a, const RegistrySummary& a, Rank rank_b,
                                       const RegistrySummary& b);

}  // namespace kintsugi
