// Sums of tensors in JSON, as manifests and sidecars keep them (private to readers and writers of such).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "replica/save/tensor_sums.h"
#include "runtime/base/json.h"

namespace kintsugi::checkpoint {

// Fields `tensors` and `tensor_sum`, their kind; neither where there are no sums.
void PutTensorSums(const std::vector<TensorSum>& sums, nlohmann::json* body);
// Nothing where there are none, or of another kind.
Status ReadTensorSums(const JsonField& body, std::vector<TensorSum>* sums);

// 16 hex digits.
struct SumAsHex {
  uint64_t* into;
};
Status ReadJson(const JsonField& field, SumAsHex sum);

struct DTypeByName {
  DType* into;
};
Status ReadJson(const JsonField& field, DTypeByName dtype);

}  // namespace kintsugi::checkpoint
