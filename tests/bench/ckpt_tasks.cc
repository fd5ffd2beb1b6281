#include "tests/bench/ckpt_tasks.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "replica/formats/convert.h"
#include "runtime/base/clock.h"
#include "runtime/base/peak_memory.h"
#include "tests/bench/ckpt_resume.h"

namespace kintsugi::bench {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileError;

double CpuSeconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

Spent PlainWrite(const Json& task) {
  std::vector<std::vector<uint8_t>> state;
  for (const std::string& file : FilesOf(task["source"])) {
    const Descriptor fd(file, O_RDONLY);
    auto& bytes = state.emplace_back(fs::file_size(file));
    for (uint64_t at = 0; at < bytes.size();) {
      const ssize_t got = ::pread(fd.number, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
      if (got <= 0) Need(FileError(errno, "read", file));
      at += static_cast<uint64_t>(got);
    }
  }
  return TimeOf([&] {
    const std::string path = task["destination"];
    const Descriptor fd(path, O_WRONLY | O_CREAT | O_TRUNC);
    for (const auto& bytes : state)
      for (uint64_t at = 0; at < bytes.size(); at += kChunkBytes) {
        const uint64_t size = std::min(kChunkBytes, bytes.size() - at);
        if (::write(fd.number, bytes.data() + at, size) != static_cast<ssize_t>(size))
          Need(FileError(errno, "write", path));
      }
    if (::fsync(fd.number) != 0) Need(FileError(errno, "sync", path));
  });
}

// As cp -r does, and every file on the disk.
Spent Copy(const Json& task) {
  const std::string source = task["source"], destination = task["destination"];
  return TimeOf([&] {
    fs::copy(source, destination, fs::copy_options::recursive);
    for (const std::string& file : FilesOf(destination)) {
      const Descriptor fd(file, O_RDONLY);
      if (::fsync(fd.number) != 0) Need(FileError(errno, "sync", file));
    }
  });
}

Spent Convert(const Json& task) {
  formats::ConvertOptions options;
  options.to_format = task["to"];
  options.lay.shards = task.value("shards", 1);
  return TimeOf([&] { Need(formats::Convert(task["source"], task["destination"], options).status()); });
}

// The traffic of a conversion, past the page cache, and nothing else: what the disk takes for it. Two threads read all of the
// source, two write as many bytes.
Spent Disk(const Json& task) {
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  const std::vector<std::string> sources = FilesOf(task["source"]);
  uint64_t bytes = 0;
  for (const std::string& file : sources) bytes += fs::file_size(file) / kChunkBytes * kChunkBytes;
  const std::string destination = task["destination"];
  const auto each_chunk = [](const std::string& path, int flags, uint64_t first, uint64_t end, const char* what,
                             auto&& move) {
    const Descriptor fd(path, flags | O_DIRECT);
    const std::unique_ptr<uint8_t, Free> buffer(static_cast<uint8_t*>(std::aligned_alloc(4096, kChunkBytes)));
    std::fill_n(buffer.get(), kChunkBytes, 1);
    for (uint64_t at = first; at < end; at += kChunkBytes)
      if (move(fd.number, buffer.get(), at) != static_cast<ssize_t>(kChunkBytes)) Need(FileError(errno, what, path));
  };
  const auto read = [&](uint64_t part) {
    for (const std::string& file : sources) {
      const uint64_t half = fs::file_size(file) / kChunkBytes / 2 * kChunkBytes;
      const uint64_t end = part == 0 ? half : fs::file_size(file) / kChunkBytes * kChunkBytes;
      each_chunk(file, O_RDONLY, part * half, end, "read",
                 [](int fd, uint8_t* to, uint64_t at) { return ::pread(fd, to, kChunkBytes, static_cast<off_t>(at)); });
    }
  };
  const auto write = [&](uint64_t part) {
    const uint64_t half = bytes / kChunkBytes / 2 * kChunkBytes;
    each_chunk(
        destination, O_WRONLY, part * half, part == 0 ? half : bytes, "write",
        [](int fd, uint8_t* from, uint64_t at) { return ::pwrite(fd, from, kChunkBytes, static_cast<off_t>(at)); });
  };
  return TimeOf([&] {
    const Descriptor fd(destination, O_WRONLY | O_CREAT | O_TRUNC);
    if (::posix_fallocate(fd.number, 0, static_cast<off_t>(bytes)) != 0)
      Need(FileError(ENOSPC, "reserve", destination));
    std::vector<std::thread> threads;
    for (uint64_t part = 0; part < 2; ++part) {
      threads.emplace_back(read, part);
      threads.emplace_back(write, part);
    }
    for (std::thread& thread : threads) thread.join();
    if (::fsync(fd.number) != 0) Need(FileError(errno, "sync", destination));
  });
}

}  // namespace

Spent TimeOf(const std::function<void()>& work) {
  const double cpu = CpuSeconds();
  const TimePoint begin = SteadyClock::SteadyNow();
  work();
  return {static_cast<double>((SteadyClock::SteadyNow() - begin).count()) * 1e-9, CpuSeconds() - cpu};
}

std::vector<std::string> FilesOf(const std::string& path) {
  if (fs::is_regular_file(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

int RunTask(const Json& task) {
  const std::string what = task["do"];
  const Spent spent = what == "plain-write"    ? PlainWrite(task)
                      : what == "convert"      ? Convert(task)
                      : what == "copy"         ? Copy(task)
                      : what == "disk"         ? Disk(task)
                      : what == "plain-read"   ? Resume(task["source"], Reading::kPlain)
                      : what == "checked-read" ? Resume(task["source"], Reading::kChecked)
                      : what == "summed-read"  ? Resume(task["source"], Reading::kSummed)
                                               : Resume(task["source"], Reading::kResume);
  const Json told = {{"seconds", spent.seconds},
                     {"cpu_seconds", spent.cpu_seconds},
                     {"peak_mib", static_cast<double>(PeakMemoryBytes()) / (1 << 20)}};
  std::printf("%s\n", told.dump().c_str());
  return 0;
}

}  // namespace kintsugi::bench
