// What bench_ckpt measures: tasks, each in a process of its own.
//
// Threads: one; tasks start their own.
// Errors: what cannot be measured ends the process (Need).
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "replica/save/file_system.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {

inline constexpr uint64_t kChunkBytes = 4 << 20;  // of what reads or writes plainly

// Time by the wall clock, and processor time of all threads of this process, which is steadier on a busy machine.
struct Spent {
  double seconds = 0, cpu_seconds = 0;
};

Spent TimeOf(const std::function<void()>& work);

struct Descriptor {
  Descriptor(const std::string& path, int flags) : number(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (number < 0) Need(checkpoint::FileError(errno, "open", path));
  }
  ~Descriptor() { ::close(number); }
  Descriptor(const Descriptor&) = delete;
  const int number;
};

// Regular files, sorted; the path itself where it is one.
std::vector<std::string> FilesOf(const std::string& path);

// Does what `task` says and prints {"seconds", "cpu_seconds", "peak_mib"}; the exit code.
int RunTask(const Json& task);

}  // namespace kintsugi::bench
