// SharedStore: a Store for the processes that one process forks, in memory that they share; no file, no lock.
//
// An entry is written once and becomes visible by a flag, so that a process which is killed at any moment hinders no
// other. REQUIRES: made before the processes are.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "callbacks/handlers/store.h"

namespace kintsugi {

class SharedStore final : public Store {
 public:
  SharedStore() {
    void* memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    table_ = new (memory) Table;
  }
  ~SharedStore() override { munmap(table_, sizeof(Table)); }
  SharedStore(const SharedStore&) = delete;
  SharedStore& operator=(const SharedStore&) = delete;

  Status Set(const std::string& key, const std::vector<uint8_t>& value) override {
    const uint32_t number = table_->next.fetch_add(1);
    if (number >= kEntries || key.size() >= kKeyBytes || value.size() > kValueBytes)
      return {StatusCode::kResourceExhausted, "the test's store is full at '" + key + "'"};
    Entry& entry = table_->entries[number];
    std::memcpy(entry.key, key.c_str(), key.size() + 1);
    if (!value.empty()) std::memcpy(entry.value, value.data(), value.size());
    entry.value_bytes = static_cast<uint32_t>(value.size());
    entry.is_ready.store(true, std::memory_order_release);
    return Status::Ok();
  }

  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint deadline) override {
    for (;;) {
      for (uint32_t i = std::min<uint32_t>(table_->next.load(), kEntries); i-- > 0;) {
        const Entry& entry = table_->entries[i];
        if (entry.is_ready.load(std::memory_order_acquire) && key == entry.key)
          return std::vector<uint8_t>(entry.value, entry.value + entry.value_bytes);
      }
      if (SteadyClock::SteadyNow() >= deadline) return Status(StatusCode::kDeadlineExceeded, "no key '" + key + "'");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  static constexpr uint32_t kEntries = 4096, kKeyBytes = 200, kValueBytes = 16384;
  struct Entry {
    std::atomic<bool> is_ready{false};
    uint32_t value_bytes = 0;
    char key[kKeyBytes] = {};
    uint8_t value[kValueBytes] = {};
  };
  struct Table {
    std::atomic<uint32_t> next{0};
    Entry entries[kEntries];
  };
  Table* table_ = nullptr;
};

}  // namespace kintsugi
