// Mutex, MutexLock and CondVar: the standard ones, told to Clang, which proves with -Wthread-safety that what a mutex
// guards is touched only while it is held (tests/thread_safety). Other compilers see plain wrappers.
//
// A field says KINTSUGI_GUARDED_BY(mutex_), a function that expects its caller to hold it KINTSUGI_REQUIRES(mutex_), and
// so does what CondVar::Wait is given: [this]() KINTSUGI_REQUIRES(mutex_) { return ready_; }.
// Source: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
// Threads: any; a MutexLock belongs to the thread that made it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__)
#define KINTSUGI_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define KINTSUGI_THREAD_SAFETY(attribute)
#endif
#define KINTSUGI_GUARDED_BY(mutex) KINTSUGI_THREAD_SAFETY(guarded_by(mutex))
#define KINTSUGI_REQUIRES(...) KINTSUGI_THREAD_SAFETY(requires_capability(__VA_ARGS__))
// A function that hands out the very mutex.
#define KINTSUGI_RETURNS(mutex) KINTSUGI_THREAD_SAFETY(lock_returned(mutex))

namespace kintsugi {

class KINTSUGI_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // The caller has it, by a way that cannot be written down: said, not checked.
  void AssertHeld() const KINTSUGI_THREAD_SAFETY(assert_capability(this)) {}

 private:
  friend class MutexLock;
  std::mutex native_;
};

class KINTSUGI_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KINTSUGI_THREAD_SAFETY(acquire_capability(mutex)) : lock_(mutex.native_) {}
  ~MutexLock() KINTSUGI_THREAD_SAFETY(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // For a while: what is guarded may not be touched until Lock.
  void Unlock() KINTSUGI_THREAD_SAFETY(release_capability()) { lock_.unlock(); }
  void Lock() KINTSUGI_THREAD_SAFETY(acquire_capability()) { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

// Each Wait gives the lock away while it waits, and has it again when it returns; `due` is called with it.
class CondVar {
 public:
  void Wait(MutexLock& lock) { native_.wait(lock.lock_); }
  template <typename Due>
  void Wait(MutexLock& lock, Due due) {
    native_.wait(lock.lock_, std::move(due));
  }
  // False: the time is over, and it is still not due.
  template <typename Rep, typename Period, typename Due>
  bool WaitFor(MutexLock& lock, std::chrono::duration<Rep, Period> limit, Due due) {
    return native_.wait_for(lock.lock_, limit, std::move(due));
  }
  template <typename Due>
  bool WaitUntil(MutexLock& lock, std::chrono::steady_clock::time_point deadline, Due due) {
    return native_.wait_until(lock.lock_, deadline, std::move(due));
  }
  void NotifyAll() { native_.notify_all(); }

 private:
  std::condition_variable native_;
};

}  // namespace kintsugi
