#include "kernels/host_copy.h"

#include <atomic>

#include "kernels/host_copy_way.h"

namespace kintsugi {
namespace {

// Below this a copy is likely to be read again, and fits the cache anyway.
constexpr uint64_t kSmallCopyBytes = 48 * 1024;
// Until a process has copied so much the trial would cost more than it gains.
constexpr uint64_t kUntriedBytes = 32 << 20;

internal::CopyWay WayFor(uint64_t size_bytes) {
  static std::atomic<uint64_t> copied{0};
  if (size_bytes < kSmallCopyBytes) return internal::CopyWay::kPlain;
  if (copied.load(std::memory_order_relaxed) < kUntriedBytes &&
      copied.fetch_add(size_bytes, std::memory_order_relaxed) + size_bytes < kUntriedBytes)
    return internal::CopyWay::kPlain;
  return internal::ChosenCopyWay();
}

}  // namespace

void StreamCopy(void* to, const void* from, uint64_t size_bytes, RunningChecksum* checksum) {
  if (size_bytes == 0) return;
  internal::CopyBy(WayFor(size_bytes), static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), size_bytes, checksum);
}

}  // namespace kintsugi
