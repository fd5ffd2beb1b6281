// What nvidia-smi says of a host's devices. Pure.
//
// Errors: ReadGpus: kInvalidArgument for what is no answer to kGpuQuery. A figure that a device does not have ("[N/A]")
// is nullopt, and what older drivers do not answer is not known.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::doctor {

inline constexpr const char* kGpuQuery =
    "--query-gpu=index,name,driver_version,ecc.errors.uncorrected.volatile.total,retired_pages.pending,"
    "temperature.gpu,memory.used,memory.total,persistence_mode,compute_mode,mig.mode.current";
// Why a device is slowed down, by the name that the field has had since driver 535, then by the older one.
inline constexpr std::array<const char*, 2> kSlowedQueries = {
    "--query-gpu=index,clocks_event_reasons.hw_thermal_slowdown,clocks_event_reasons.sw_thermal_slowdown,"
    "clocks_event_reasons.hw_power_brake_slowdown,clocks_event_reasons.hw_slowdown",
    "--query-gpu=index,clocks_throttle_reasons.hw_thermal_slowdown,clocks_throttle_reasons.sw_thermal_slowdown,"
    "clocks_throttle_reasons.hw_power_brake_slowdown,clocks_throttle_reasons.hw_slowdown"};

struct GpuFacts {
  int index = 0;
  std::string name, driver;
  std::optional<int64_t> uncorrected;  // memory errors since the driver was loaded
  bool pages_pending = false;          // pages that will be retired at the next reset
  std::optional<int64_t> celsius;
  std::optional<int64_t> used_mib, total_mib;
  bool persistent = true;   // the driver keeps the device where no process has it open; true where nobody says
  bool prohibited = false;  // the compute mode lets no process use it
  bool sliced = false;      // MIG is on
  std::string slowed_by;    // "heat"; empty: nothing
};

// Two devices that cannot read each other's memory.
struct PeerGap {
  int from = 0, to = 0;
  std::string why;  // nvidia-smi's word: CNS, GNS, TNS, NS, U
};

// Of `nvidia-smi kGpuQuery --format=csv,noheader,nounits`.
Result<std::vector<GpuFacts>> ReadGpus(std::string_view csv);

// Of `nvidia-smi kSlowedQueries --format=csv,noheader`: what slows each device that is slowed down, by its number.
std::map<int, std::string> ReadSlowed(std::string_view csv);

// Of `nvidia-smi topo -p2p r`, each pair once, the lower number first.
std::vector<PeerGap> ReadPeerGaps(std::string_view table);

// As ncclGetVersion numbers them: 21805 is "2.18.5", and before 2.9 2708 was "2.7.8".
std::string NcclVersionText(int version);

}  // namespace kintsugi::doctor
