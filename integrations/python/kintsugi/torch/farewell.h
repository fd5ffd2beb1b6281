// Farewell: closes all groups of this process after a while, unless it is destroyed before.
//
// Threads: one of its own, which a script's end may have too, where Python makes none any more.
// Errors: none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace kintsugi::torch_door {

class Farewell {
 public:
  // `why`: for this process's own calls from then on.
  Farewell(std::chrono::milliseconds after, std::string why);
  ~Farewell() { Cancel(); }
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;

  // Waits where it is at it. A work that fails may call Python: not with Python's lock.
  void Cancel();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  std::thread thread_;
};

}  // namespace kintsugi::torch_door
