#include "kernels/host_cast_rows_body.h"

namespace kintsugi::internal {

RowCast RowCastBase(ElementType to, ElementType from) { return FindCast(to, from); }

}  // namespace kintsugi::internal
