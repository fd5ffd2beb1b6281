#include "integrations/examples/byte_lm/cpu.h"

namespace kintsugi::byte_lm {

Status CheckCpu() {
#ifdef KINTSUGI_BYTE_LM_X86_64_V3
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2")) {
    return Status(StatusCode::kFailedPrecondition,
                  "byte_lm: built for x86-64-v3, but this processor lacks AVX2, FMA or BMI2; configure with "
                  "-DKINTSUGI_NATIVE_X86_64_V3=OFF and build again");
  }
#endif
  return Status::Ok();
}

}  // namespace kintsugi::byte_lm
