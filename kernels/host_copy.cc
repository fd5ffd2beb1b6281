#include "kernels/host_copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/host_copy_avx2.h"

namespace kintsugi {
namespace {

// Below this a copy is likely to be read again, and fits the cache anyway.
constexpr uint64_t kSmallCopyBytes = 48 * 1024;

void PlainCopy(uint8_t* to, const uint8_t* from, uint64_t size_bytes, RunningChecksum* checksum) {
  while (size_bytes > 0) {
    const uint64_t part = std::min(size_bytes, internal::kCopyTileBytes);
    if (checksum) checksum->Update(from, part);
    std::memcpy(to, from, part);
    to += part;
    from += part;
    size_bytes -= part;
  }
}

#if defined(__x86_64__)
bool HaveAvx2() {
  static const bool have = __builtin_cpu_supports("avx2");
  return have;
}

void TiledCopy(uint8_t* to, const uint8_t* from, uint64_t size_bytes, RunningChecksum* checksum) {
  const uint64_t head = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  PlainCopy(to, from, head, checksum);
  uint64_t at = head;
  for (; at + internal::kCopyTileBytes <= size_bytes; at += internal::kCopyTileBytes) {
    const bool last = at + 2 * internal::kCopyTileBytes > size_bytes;
    if (checksum) checksum->Update(from + at, internal::kCopyTileBytes);
    internal::CopyTileAvx2(to + at, from + at, last ? from + at : from + at + internal::kCopyTileBytes);
  }
  internal::CopyFenceAvx2();
  PlainCopy(to + at, from + at, size_bytes - at, checksum);
}
#endif

}  // namespace

void StreamCopy(void* to, const void* from, uint64_t size_bytes, RunningChecksum* checksum) {
  auto* target = static_cast<uint8_t*>(to);
  auto* source = static_cast<const uint8_t*>(from);
#if defined(__x86_64__)
  if (size_bytes >= kSmallCopyBytes && HaveAvx2()) return TiledCopy(target, source, size_bytes, checksum);
#endif
  if (!checksum && size_bytes > 0) {
    std::memcpy(target, source, size_bytes);
    return;
  }
  PlainCopy(target, source, size_bytes, checksum);
}

}  // namespace kintsugi
