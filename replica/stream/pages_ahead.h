// PagesAhead: fills the page tables of mapped memory ahead of its reader. To fill them takes about as long as to copy what they
// show (4 KiB pages), so a thread of its own does it.
//
// Threads: one reader; the thread lives from the first Read with 4 MiB to fill until the destructor.
// Units: bytes.
// Errors: none, it is only a hint: kernels before 5.14 do not know it and fault page by page.
#pragma once

#include <cstdint>
#include <thread>

#include "runtime/base/mutex.h"

namespace kintsugi {

class PagesAhead {
 public:
  PagesAhead() = default;
  // Nothing touches the mappings afterwards.
  ~PagesAhead();
  PagesAhead(const PagesAhead&) = delete;
  PagesAhead& operator=(const PagesAhead&) = delete;

  // [at, at + size_bytes) is read next, and likely what follows it in a mapping that ends at `end`. Returns once the page tables
  // of the first MiB are filled.
  void Read(const uint8_t* at, uint64_t size_bytes, const uint8_t* end);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  // Filled are [start_, filled_); wanted is what lies before goal_.
  uintptr_t start_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uintptr_t filled_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uintptr_t goal_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  bool ended_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kintsugi
