// Scheduler: virtual time. Tasks run in the order of their instants, and at one instant in the order they were given.
//
// Nothing waits: the clock jumps from task to task. A task keeps its captures in place, without an allocation of its
// own: a run is tens of thousands of tasks, and a campaign thousands of runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"

namespace kintsugi::sim {

// A callable that is moved and called once. Its captures fit kBytes: a larger one does not compile.
class Task {
 public:
  static constexpr size_t kBytes = 168;

  Task() = default;
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Task>>>
  Task(F&& callable) {  // NOLINT: any callable is a task
    Set(std::forward<F>(callable));
  }
  Task(Task&& other) noexcept { *this = std::move(other); }
  Task& operator=(Task&& other) noexcept {
    if (this == &other) return *this;
    Clear();
    manage_ = std::exchange(other.manage_, nullptr);
    if (manage_) manage_(other.bytes_, bytes_, false);
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() { Clear(); }

  void operator()() { manage_(bytes_, nullptr, true); }

  // As if it had been made of it. REQUIRES: it is empty.
  template <typename F>
  void Set(F&& callable) {
    using Callable = std::decay_t<F>;
    static_assert(sizeof(Callable) <= kBytes && std::is_nothrow_move_constructible_v<Callable>);
    new (bytes_) Callable(std::forward<F>(callable));
    manage_ = [](void* from, void* to, bool run) {
      Callable& callable_there = *static_cast<Callable*>(from);
      if (run) callable_there();
      if (to) new (to) Callable(std::move(callable_there));
      if (!run) callable_there.~Callable();
    };
  }
  void Set(Task&& other) { *this = std::move(other); }

 private:
  void Clear() {
    if (manage_) std::exchange(manage_, nullptr)(bytes_, nullptr, false);
  }

  // Runs what is at `from`; or moves it to `to`, where that is not null, and destroys it.
  void (*manage_)(void* from, void* to, bool run) = nullptr;
  alignas(std::max_align_t) std::byte bytes_[kBytes];
};

class Scheduler {
 public:
  explicit Scheduler(TimePoint start) : now_(start) {}

  TimePoint now() const { return now_; }
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }

  // `what`: a callable, or a task. It is made into one where it is kept.
  template <typename What>
  void At(TimePoint when, What what) {
    Place(when).Set(std::move(what));
  }

  // Runs the next task. REQUIRES: not empty.
  void RunNext() {
    const Entry entry = Pop();
    now_ = entry.at;
    // The tasks of a large world are spread over more memory than any cache holds.
    if (!heap_.empty()) Fetch(tasks_[heap_.front().slot]);
    // Taken out first: the task may add others.
    Task task = std::move(tasks_[entry.slot]);
    free_.push_back(entry.slot);
    task();
  }

 private:
  // An empty task, which runs at that instant.
  Task& Place(TimePoint when) {
    uint32_t slot = static_cast<uint32_t>(tasks_.size());
    if (free_.empty()) {
      tasks_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    Push({std::max(when, now_), ++number_, slot});
    return tasks_[slot];
  }

  struct Entry {
    TimePoint at;
    uint64_t number = 0;
    uint32_t slot = 0;
  };
  static bool Earlier(const Entry& a, const Entry& b) { return a.at != b.at ? a.at < b.at : a.number < b.number; }

  static void Fetch(const Task& task) {
#if defined(__GNUC__)
    for (size_t line = 0; line < sizeof(Task); line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(&task) + line, 1);
#else
    static_cast<void>(task);
#endif
  }

  // A heap of which every entry has four children: with a hundred thousand of them half the misses of one of two.
  static constexpr size_t kChildren = 4;

  void Push(const Entry& entry) {
    size_t i = heap_.size();
    heap_.push_back(entry);
    for (; i > 0 && Earlier(entry, heap_[(i - 1) / kChildren]); i = (i - 1) / kChildren)
      heap_[i] = heap_[(i - 1) / kChildren];
    heap_[i] = entry;
  }

  Entry Pop() {
    const Entry first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return first;
    size_t i = 0;
    for (size_t child = 1; child < heap_.size(); child = i * kChildren + 1) {
      const size_t end = std::min(child + kChildren, heap_.size());
      for (size_t other = child + 1; other < end; ++other)
        if (Earlier(heap_[other], heap_[child])) child = other;
      if (!Earlier(heap_[child], last)) break;
      heap_[i] = heap_[child];
      i = child;
    }
    heap_[i] = last;
    return first;
  }

  TimePoint now_;
  uint64_t number_ = 0;
  std::vector<Entry> heap_;
  std::vector<Task> tasks_;
  std::vector<uint32_t> free_;
};

}  // namespace kintsugi::sim
