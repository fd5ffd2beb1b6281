// Sums of tensors in JSON, as manifests and sidecars keep them (private to readers and writers of such).
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "replica/save/json_fields.h"
#include "replica/save/tensor_sums.h"

namespace kintsugi::checkpoint {

// Fields `tensors` and `tensor_sum`, their kind; neither where there are no sums.
void PutTensorSums(const std::vector<TensorSum>& sums, nlohmann::json* body);
// Nothing where there are none, or of another kind; a mistake refuses the document.
std::vector<TensorSum> GetTensorSums(Fields* fields);
// The sum in the field "sum".
uint64_t GetSum(Fields* fields);

}  // namespace kintsugi::checkpoint
