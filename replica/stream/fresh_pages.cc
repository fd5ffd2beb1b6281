#include "replica/stream/fresh_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace kintsugi {

void FillFreshPages(void* data, uint64_t size_bytes) {
  constexpr uint64_t kWorthIt = 64 * 1024;
  if (size_bytes < kWorthIt) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t start = reinterpret_cast<uintptr_t>(data) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(data) + size_bytes;
  // The last page, since the first one may hold the end of what came before. Asking for pages that are there costs half as much
  // as copying into them.
  unsigned char there = 1;
  if (mincore(reinterpret_cast<void*>((end - 1) / page * page), page, &there) != 0 || (there & 1) != 0) return;
  madvise(reinterpret_cast<void*>(start), end - start, MADV_POPULATE_WRITE);
}

}  // namespace kintsugi
