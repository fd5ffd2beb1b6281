// DirectoryStore: a Store for tests with several processes, one file per key. The directory belongs to the caller.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "callbacks/handlers/store.h"

namespace kintsugi {

class DirectoryStore final : public Store {
 public:
  explicit DirectoryStore(std::filesystem::path directory) : directory_(std::move(directory)) {}

  Status Set(const std::string& key, const std::vector<uint8_t>& value) override {
    const auto unfinished = PathOf("unfinished-" + std::to_string(getpid()) + "-" + std::to_string(++counter_));
    {
      std::ofstream file(unfinished, std::ios::binary);
      file.write(reinterpret_cast<const char*>(value.data()), static_cast<std::streamsize>(value.size()));
    }
    std::filesystem::rename(unfinished, PathOf(key));
    return Status::Ok();
  }

  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint deadline) override {
    for (;;) {
      std::ifstream file(PathOf(key), std::ios::binary);
      if (file) return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
      if (SteadyClock::SteadyNow() >= deadline) return Status(StatusCode::kDeadlineExceeded, "no key '" + key + "'");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::filesystem::path PathOf(std::string key) const {
    for (char& c : key)
      if (c == '/') c = '+';
    return directory_ / key;
  }

  const std::filesystem::path directory_;
  std::atomic<int> counter_{0};
};

// A fresh directory that goes with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kintsugi-test-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed for " + pattern);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace kintsugi
