#include "replica/reshard/handover.h"

#include "runtime/base/check.h"

namespace kintsugi::reshard {

uint8_t* Handover::Take() {
  MutexLock lock(mutex_);
  changed_.Wait(
      lock, [&]() KINTSUGI_REQUIRES(mutex_) { return stopped_ || !free_.empty() || buffers_.size() < buffers_max_; });
  if (stopped_) return nullptr;
  if (free_.empty()) {
    buffers_.push_back(std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(buffer_bytes_)));
    meter_.Add(buffer_bytes_);
    return buffers_.back().get();
  }
  uint8_t* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

bool Handover::Put(Filled filled) {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return stopped_ || queue_.size() < buffers_max_; });
  if (stopped_) return false;
  KINTSUGI_CHECK(!closed_, "nothing comes behind the last message");
  queue_.push_back(std::move(filled));
  changed_.NotifyAll();
  return true;
}

void Handover::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

bool Handover::Get(Filled* filled) {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return stopped_ || closed_ || !queue_.empty(); });
  if (stopped_ || queue_.empty()) return false;
  *filled = std::move(queue_.front());
  queue_.pop_front();
  changed_.NotifyAll();
  return true;
}

void Handover::GiveBack(uint8_t* buffer) {
  if (buffer == nullptr) return;
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(free_.size() < buffers_.size(), "a buffer is given back once");
  free_.push_back(buffer);
  changed_.NotifyAll();
}

void Handover::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

}  // namespace kintsugi::reshard
