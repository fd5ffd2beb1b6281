// Casts of N-d regions of host memory from one element type to another.
//
// What: the elements of a region are read in one type and written in another, by the strides of host_region.h. Rules:
//   to the same type       the bits are copied, whatever they mean
//   to a float             rounded once, to nearest, ties to even (IEEE 754-2019 5.4.2), from the exact value: one of
//                          64 bits is not rounded to binary32 on the way. Subnormals are kept. Above the largest value
//                          after rounding: infinity; float8_e4m3, which has none, gives NaN, also for infinity (OCP
//                          OFP8 1.0 without saturation; torch 2.13 saturates: too large a value is to be seen)
//   a NaN                  becomes the target's quiet NaN with no other payload bit; the sign is kept
//   float to integer       toward zero (C++ [conv.fpint]); what does not fit becomes the nearest limit, NaN becomes 0,
//                          as PTX cvt does, where C++ leaves it undefined
//   integer to integer     modulo 2^n (C++ [conv.integral])
//   to bool                1 unless the value is 0 or -0; NaN is 1.  From bool: 0 or 1, whatever byte stands there
//   complex                to complex only, part by part
// So every result is defined bit by bit, and a device kernel can give the same.
// REQUIRES: as host_region.h; IsCastable; the rounding mode is to nearest.
// Threads: pure.
#pragma once

#include "kernels/element_type.h"
#include "kernels/host_region.h"
#include "runtime/base/export.h"

namespace kintsugi {

// Both are castable types, and complex goes to complex and nothing else does; or both are the same type.
KINTSUGI_EXPORT bool IsCastable(ElementType from, ElementType to);

// Strides in `region` are those of the two element types.
KINTSUGI_EXPORT void CastRegion(void* to, ElementType to_type, const void* from, ElementType from_type,
                                const RegionPair& region);

}  // namespace kintsugi
