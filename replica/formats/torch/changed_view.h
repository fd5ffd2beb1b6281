// ChangedView: a tensor that is stored as what it is a view of, conjugated or negated when it is read (torch's conj() and
// _neg_view()): its elements as they are.
//
// What: the elements of the view, dense and row-major, in memory. Signs are flipped, of zeros and NaNs too (torch's own kernels
// differ there among themselves where a view is both).
// Errors: CheckView: kInvalidArgument: a type that torch makes no such view of, or more than kViewBytesMax; kDataLoss: the storage is short.
// Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "replica/formats/torch/tensor.h"
#include "runtime/base/result.h"

namespace kintsugi::formats::torch {

inline constexpr uint64_t kViewBytesMax = uint64_t{1} << 30;

// That it can be read: type and size. OK for a tensor that is no such view.
Status CheckView(const PickledTensor& tensor);
// `stored`: the storage from the tensor's first element on. REQUIRES: CheckView.
Result<std::string> ElementsOfView(const PickledTensor& tensor, std::span<const uint8_t> stored);

}  // namespace kintsugi::formats::torch
