// How a large copy is made, and which way is the fastest on this processor (private).
//
// Non-temporal stores in four streams side by side are the fastest on some processors and a third of memcpy on others (Zen 3). So each way is
// tried once per process, which takes some milliseconds. KINTSUGI_HOST_COPY names one instead.
// Threads: pure, but for the trial, which all wait for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/host_checksum.h"

namespace kintsugi::internal {

enum class CopyWay : uint8_t { kPlain, kOneStream, kTwoStreams, kFourStreams };

inline constexpr std::array kCopyWays = {CopyWay::kPlain, CopyWay::kOneStream, CopyWay::kTwoStreams,
                                         CopyWay::kFourStreams};

// "plain", "streams-1", "streams-2", "streams-4".
std::string_view CopyWayName(CopyWay way);
std::optional<CopyWay> CopyWayFromName(std::string_view name);

// Whether this processor has the instructions.
bool CanCopy(CopyWay way);

// The fastest of those that it can.
CopyWay ChosenCopyWay();

// Copies, and with `checksum` adds the source bytes to it. REQUIRES: CanCopy(way).
void CopyBy(CopyWay way, uint8_t* to, const uint8_t* from, uint64_t size_bytes, RunningChecksum* checksum);

}  // namespace kintsugi::internal
