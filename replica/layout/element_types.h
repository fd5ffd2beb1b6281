// DType as the kernels' ElementType (private to replica).
#pragma once

#include "callbacks/state/dtype.h"
#include "kernels/element_type.h"

namespace kintsugi::layout {

constexpr ElementType ElementTypeOf(DType dtype) { return static_cast<ElementType>(dtype); }

#define KINTSUGI_SAME(name) static_assert(ElementTypeOf(DType::name) == ElementType::name)
KINTSUGI_SAME(kFloat64);
KINTSUGI_SAME(kFloat32);
KINTSUGI_SAME(kFloat16);
KINTSUGI_SAME(kBFloat16);
KINTSUGI_SAME(kFloat8E4M3);
KINTSUGI_SAME(kFloat8E5M2);
KINTSUGI_SAME(kInt64);
KINTSUGI_SAME(kInt32);
KINTSUGI_SAME(kInt16);
KINTSUGI_SAME(kInt8);
KINTSUGI_SAME(kUInt8);
KINTSUGI_SAME(kBool);
KINTSUGI_SAME(kComplex64);
KINTSUGI_SAME(kComplex128);
KINTSUGI_SAME(kUInt16);
KINTSUGI_SAME(kUInt32);
KINTSUGI_SAME(kUInt64);
KINTSUGI_SAME(kComplex32);
KINTSUGI_SAME(kFloat8E4M3Fnuz);
KINTSUGI_SAME(kFloat8E5M2Fnuz);
KINTSUGI_SAME(kFloat8E8M0);
#undef KINTSUGI_SAME

}  // namespace kintsugi::layout
