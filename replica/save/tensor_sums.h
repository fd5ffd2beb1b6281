// TensorSum: the digest of a logical tensor, the same however it is cut (logical_sum.h), as a checkpoint keeps it
// beside name, type and shape; and how those of a checkpoint come from its shards.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/export.h"

namespace kintsugi::checkpoint {

inline constexpr std::string_view kTensorSumName = "multilinear-64";
// About the text of one checkpoint's sums: beyond it none are kept, so that a manifest can still be read.
inline constexpr uint64_t kTensorSumsBytesMax = 32ull << 20;

struct TensorSum {
  std::string key;
  DType dtype = DType::kFloat32;
  Shape shape;
  uint64_t sum = 0;
  bool operator==(const TensorSum&) const = default;
};

// Shards of a checkpoint, put together by tensor.
class KINTSUGI_EXPORT SumGatherer {
 public:
  // `sum`: nothing where it is not known. Of copies, shards of one region, one counts.
  void Add(const ShardedTensor& shard, std::optional<uint64_t> sum);
  // Ascending by key; without tensors of which a shard's sum is not known, that are not there once and whole (copies
  // that are cut in different ways hold elements twice), or of which two copies differ. Nothing where they are too
  // many.
  std::vector<TensorSum> Sums() const;
  // Whether shards of one region have come with sums that differ.
  bool HasUnlikeCopies() const { return has_unlike_copies_; }

 private:
  using Region = std::tuple<Shape, Shape, int64_t, int64_t>;  // offset, shape, flat range
  struct Tensor {
    DType dtype = DType::kFloat32;
    Shape shape;
    std::map<Region, uint64_t> sum_of;
    int64_t elements = 0;
    bool is_known = true;
  };
  std::map<std::string, Tensor> tensors_;
  bool has_unlike_copies_ = false;
};

struct Part;
std::vector<TensorSum> TensorSumsOf(const std::vector<const Part*>& parts);

}  // namespace kintsugi::checkpoint
