// Rows of elements cast from one type to another, by the rules of host_cast.h. Internal to kernels.
#pragma once

#include <cstdint>

#include "kernels/element_type.h"

namespace kintsugi::internal {

// Strides in bytes.
using RowCast = void (*)(uint8_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride, int64_t count);

// REQUIRES: the types differ, and neither is complex.
RowCast RowCastBase(ElementType to, ElementType from);
RowCast RowCastAvx2(ElementType to, ElementType from);

}  // namespace kintsugi::internal
