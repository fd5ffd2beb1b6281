// What nvidia-smi says of a host's devices. Pure.
//
// Errors: ReadGpus: kInvalidArgument for what is no answer to kGpuQuery. A figure that a device does not have ("[N/A]")
// is nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::doctor {

inline constexpr const char* kGpuQuery =
    "--query-gpu=index,name,driver_version,ecc.errors.uncorrected.volatile.total,retired_pages.pending,"
    "temperature.gpu,memory.used";

struct GpuFacts {
  int index = 0;
  std::string name, driver;
  std::optional<int64_t> uncorrected;  // memory errors since the driver was loaded
  bool pages_pending = false;          // pages that will be retired at the next reset
  std::optional<int64_t> celsius;
  std::optional<int64_t> used_mib;
};

// Of `nvidia-smi kGpuQuery --format=csv,noheader,nounits`.
Result<std::vector<GpuFacts>> ReadGpus(std::string_view csv);

// As ncclGetVersion numbers them: 21805 is "2.18.5", and before 2.9 2708 was "2.7.8".
std::string NcclVersionText(int version);

}  // namespace kintsugi::doctor
