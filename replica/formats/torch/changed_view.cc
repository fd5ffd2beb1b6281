#include "replica/formats/torch/changed_view.h"

#include "replica/layout/box.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::torch {
namespace {

// The bytes of a real number of the type, two of which a complex one is; 0: it has no sign to flip.
uint64_t RealBytes(DType dtype) {
  switch (dtype) {
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
      return DTypeSize(dtype) / 2;
    case DType::kFloat64:
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
      return DTypeSize(dtype);
    default:
      return 0;
  }
}

bool IsComplex(DType dtype) { return RealBytes(dtype) > 0 && RealBytes(dtype) < DTypeSize(dtype); }

std::string Describe(const PickledTensor& tensor) {
  return "a conjugated or negated view of " + std::string(DTypeName(tensor.dtype)) + " " + DescribeShape(tensor.shape);
}

}  // namespace

Status CheckView(const PickledTensor& tensor) {
  if (!tensor.is_conjugated && !tensor.is_negated) return Status::Ok();
  if (RealBytes(tensor.dtype) == 0 || (tensor.is_conjugated && !IsComplex(tensor.dtype)))
    return {StatusCode::kInvalidArgument, Describe(tensor) + " is not read"};
  const auto count = layout::Product(tensor.shape);
  if (count && static_cast<uint64_t>(*count) <= kViewBytesMax / DTypeSize(tensor.dtype)) return Status::Ok();
  return {StatusCode::kInvalidArgument, Describe(tensor) + " is read up to " + std::to_string(kViewBytesMax) +
                                            " bytes: save tensor.resolve_conj().resolve_neg()"};
}

Result<std::string> ElementsOfView(const PickledTensor& tensor, std::span<const uint8_t> stored) {
  const uint64_t element = DTypeSize(tensor.dtype), real = RealBytes(tensor.dtype);
  const int64_t count = *layout::Product(tensor.shape);
  KINTSUGI_CHECK(real > 0 && static_cast<uint64_t>(count) <= kViewBytesMax / element,
                 Describe(tensor) + " was not refused, and is made of " + std::to_string(count) + " elements");
  const auto out = [&] { return Status(StatusCode::kDataLoss, Describe(tensor) + " reaches out of its storage"); };
  // Of each component, whether its sign is another: both of a negated one, the imaginary one of a conjugated one.
  const bool flips_first = tensor.is_negated,
             flips_second = IsComplex(tensor.dtype) && tensor.is_negated != tensor.is_conjugated;
  std::string elements;
  elements.reserve(static_cast<size_t>(count) * element);
  Shape index(tensor.shape.size());
  for (int64_t i = 0; i < count; ++i) {
    uint64_t at = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      uint64_t step = 0;
      if (__builtin_mul_overflow(static_cast<uint64_t>(index[axis]), static_cast<uint64_t>(tensor.strides[axis]),
                                 &step) ||
          __builtin_add_overflow(at, step, &at))
        return out();
    }
    if (at >= stored.size() / element) return out();
    elements.append(reinterpret_cast<const char*>(stored.data()) + at * element, element);
    // The sign is the highest bit of the last byte.
    char* const made = elements.data() + elements.size() - element;
    if (flips_first) made[real - 1] ^= static_cast<char>(0x80);
    if (flips_second) made[element - 1] ^= static_cast<char>(0x80);
    for (size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < tensor.shape[axis]) break;
      index[axis] = 0;
    }
  }
  KINTSUGI_CHECK(elements.size() == static_cast<size_t>(count) * element,
                 Describe(tensor) + " became " + std::to_string(elements.size()) + " bytes");
  return elements;
}

}  // namespace kintsugi::formats::torch
