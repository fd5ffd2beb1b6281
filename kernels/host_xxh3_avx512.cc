#include "kernels/host_xxh3_body.h"

namespace kintsugi::internal {

const Xxh3Functions& Xxh3Avx512() { return kXxh3Functions; }

}  // namespace kintsugi::internal
