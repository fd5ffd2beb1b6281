// The sums of a checkpoint's tensors (replica/save/tensor_sums.h), found by reading: what lies in the files, by the
// places that the format's own metadata gives it, is what its writer summed up.
//
// Errors: kDataLoss names the tensor and both sums; those of reading.
// Threads: as write.h.
// Memory: a window.
#pragma once

#include <functional>

#include "replica/formats/catalog.h"

namespace kintsugi::formats {

// Reads the tensors of `catalog` that have a sum, and compares; gives how many there are. `progress`: bytes.
Result<uint64_t> VerifyTensorSums(const Catalog& catalog, const std::function<void(uint64_t bytes)>& progress);

}  // namespace kintsugi::formats
