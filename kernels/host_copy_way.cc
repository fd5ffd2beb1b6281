#include "kernels/host_copy_way.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/host_copy_avx2.h"

namespace kintsugi::internal {
namespace {

constexpr std::array<std::string_view, kCopyWays.size()> kNames = {"plain", "streams-1", "streams-2", "streams-4"};
constexpr const char* kVariable = "KINTSUGI_HOST_COPY";

// A trial copies so much, each time at another place: what it finds in a cache another has found there, too.
constexpr uint64_t kTrialBytes = 256 * 1024;
constexpr int kRounds = 4;

void PlainCopy(uint8_t* to, const uint8_t* from, uint64_t size_bytes, RunningChecksum* checksum) {
  if (!checksum) {
    std::memcpy(to, from, size_bytes);
    return;
  }
  while (size_bytes > 0) {
    const uint64_t part = std::min(size_bytes, kCopyTileBytes);
    checksum->Update(from, part);
    std::memcpy(to, from, part);
    to += part;
    from += part;
    size_bytes -= part;
  }
}

#if defined(__x86_64__)
void TiledCopy(CopyTile tile, uint8_t* to, const uint8_t* from, uint64_t size_bytes, RunningChecksum* checksum) {
  const uint64_t head = std::min((64 - reinterpret_cast<uintptr_t>(to) % 64) % 64, size_bytes);
  PlainCopy(to, from, head, checksum);
  uint64_t at = head;
  for (; at + kCopyTileBytes <= size_bytes; at += kCopyTileBytes) {
    const bool last = at + 2 * kCopyTileBytes > size_bytes;
    if (checksum) checksum->Update(from + at, kCopyTileBytes);
    tile(to + at, from + at, last ? from + at : from + at + kCopyTileBytes);
  }
  CopyFenceAvx2();
  PlainCopy(to + at, from + at, size_bytes - at, checksum);
}
#endif

std::optional<CopyWay> NamedWay() {
  const char* const text = std::getenv(kVariable);
  if (!text || !*text) return std::nullopt;
  const std::optional<CopyWay> named = CopyWayFromName(text);
  if (named && CanCopy(*named)) return named;
  std::fprintf(stderr, "kintsugi: %s=%s is left aside: it is plain, streams-1, streams-2 or streams-4, as the processor can\n",
               kVariable, text);
  return std::nullopt;
}

// Least of a way's times: what disturbs one only makes it longer.
CopyWay Fastest() {
  const uint64_t places = kCopyWays.size() * kRounds;
  const std::vector<uint8_t> source(places * kTrialBytes, 1);
  std::vector<uint8_t> target(places * kTrialBytes, 2);
  std::array<std::chrono::steady_clock::duration, kCopyWays.size()> least;
  least.fill(std::chrono::steady_clock::duration::max());
  uint64_t at = 0;
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < kCopyWays.size(); ++i, at += kTrialBytes) {
      if (!CanCopy(kCopyWays[i])) continue;
      const auto began = std::chrono::steady_clock::now();
      CopyBy(kCopyWays[i], target.data() + at, source.data() + at, kTrialBytes, nullptr);
      least[i] = std::min(least[i], std::chrono::steady_clock::now() - began);
    }
  return kCopyWays[static_cast<size_t>(std::min_element(least.begin(), least.end()) - least.begin())];
}

}  // namespace

std::string_view CopyWayName(CopyWay way) { return kNames[static_cast<size_t>(way)]; }

std::optional<CopyWay> CopyWayFromName(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return kCopyWays[static_cast<size_t>(found - kNames.begin())];
}

bool CanCopy(CopyWay way) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  return way == CopyWay::kPlain || has_avx2;
#else
  return way == CopyWay::kPlain;
#endif
}

CopyWay ChosenCopyWay() {
  static const CopyWay chosen = [] {
    const std::optional<CopyWay> named = NamedWay();
    return named ? *named : Fastest();
  }();
  return chosen;
}

void CopyBy(CopyWay way, uint8_t* to, const uint8_t* from, uint64_t size_bytes, RunningChecksum* checksum) {
#if defined(__x86_64__)
  switch (way) {
    case CopyWay::kPlain:
      break;
    case CopyWay::kOneStream:
      return TiledCopy(&CopyTileAvx2<1>, to, from, size_bytes, checksum);
    case CopyWay::kTwoStreams:
      return TiledCopy(&CopyTileAvx2<2>, to, from, size_bytes, checksum);
    case CopyWay::kFourStreams:
      return TiledCopy(&CopyTileAvx2<4>, to, from, size_bytes, checksum);
  }
#endif
  PlainCopy(to, from, size_bytes, checksum);
}

}  // namespace kintsugi::internal
