#include <farewell.h>
#include <group.h>

namespace kintsugi::torch_door {

Farewell::Farewell(std::chrono::milliseconds after, std::string why)
    : thread_([this, after, why = std::move(why)] {
        {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, after, [this] { return cancelled_; })) return;
        }
        CloseAll(why);
      }) {}

void Farewell::Cancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace kintsugi::torch_door
