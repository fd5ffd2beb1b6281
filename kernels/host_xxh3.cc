#include "kernels/host_xxh3.h"

#include "kernels/host_xxh3_body.h"

namespace kintsugi::internal {

const Xxh3Functions& Xxh3Base() { return kXxh3Functions; }

}  // namespace kintsugi::internal
