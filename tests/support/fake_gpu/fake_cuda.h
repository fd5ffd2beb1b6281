// The fake device behind fake_cuda.cc and fake_nccl.cc: streams that are threads, device memory that is heap.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#define FAKE_GPU_EXPORT extern "C" __attribute__((visibility("default")))

namespace kintsugi::fake {

// fake_cuda_mapping.cc: whether the address was mapped by cuMemMap.
bool IsMapped(uint64_t at);

// Memory that the host may not touch at `at` is found at `reached`.
bool IsGuarding();
void Guard(uint64_t at, size_t size, char* reached);
void Unguard(uint64_t at);

// Where the device itself finds what lies at the address: elsewhere, where memory is guarded; host memory lies where it lies.
char* Reach(const void* at);

// Runs what is enqueued, in order.
class Stream {
 public:
  Stream() : worker_([this] { Work(); }) {}
  ~Stream() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }
  const std::thread::id maker = std::this_thread::get_id();

  void Enqueue(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

 private:
  void Work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ended_ = false;
  std::thread worker_;
};

}  // namespace kintsugi::fake
