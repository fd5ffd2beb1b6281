#include "replica/stream/pages_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/base/check.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace kintsugi {
namespace {

constexpr uintptr_t kAheadBytes = 64 << 20;
constexpr uintptr_t kPieceBytes = 4 << 20;
constexpr uintptr_t kFirstBytes = 1 << 20;

void Fill(uintptr_t from, uintptr_t to) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t start = from / page * page;
  madvise(reinterpret_cast<void*>(start), to - start, MADV_POPULATE_READ);
}

}  // namespace

PagesAhead::~PagesAhead() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void PagesAhead::Read(const uint8_t* at, uint64_t size_bytes, const uint8_t* end) {
  const auto from = reinterpret_cast<uintptr_t>(at), to = from + size_bytes, first = std::min(to, from + kFirstBytes);
  KINTSUGI_CHECK(at <= end && size_bytes <= static_cast<uint64_t>(end - at), "what is read next lies in its mapping");
  bool there = false;
  {
    MutexLock lock(mutex_);
    KINTSUGI_CHECK(!ended_ && start_ <= filled_, "filled pages begin before they end, while there is a reader");
    there = start_ <= from && first <= filled_;
    if (from < start_ || from > filled_) start_ = filled_ = from;  // another mapping, or the reader jumped
    if (!there) filled_ = std::max(filled_, first);                // by this thread, below
    goal_ = std::min(reinterpret_cast<uintptr_t>(end), to + kAheadBytes);
    if (filled_ < goal_) {
      changed_.NotifyAll();
      // What is small is faulted in before a thread has begun.
      if (!thread_.joinable() && goal_ - filled_ >= kPieceBytes) thread_ = std::thread([this] { Run(); });
    }
  }
  if (!there) Fill(from, first);
}

void PagesAhead::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.Wait(lock, [this]() KINTSUGI_REQUIRES(mutex_) { return ended_ || filled_ < goal_; });
    if (ended_) return;
    const uintptr_t from = filled_, to = std::min(goal_, from + kPieceBytes);
    lock.Unlock();
    Fill(from, to);
    lock.Lock();
    if (filled_ == from) filled_ = to;  // else the reader was faster, or jumped
  }
}

}  // namespace kintsugi
