#include "runtime/journal/file_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>

#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"
#include "runtime/base/write_all.h"

namespace kintsugi::journal {
namespace {

constexpr auto kFinishLimit = std::chrono::seconds(1);

Status SystemError(const std::string& what, const std::string& path, int error) {
  const StatusCode code = error == ENOSPC || error == EDQUOT || error == EFBIG ? StatusCode::kResourceExhausted
                          : error == EACCES || error == EPERM                  ? StatusCode::kPermissionDenied
                                                                               : StatusCode::kInvalidArgument;
  return {code, "cannot " + what + " '" + path + "': " + std::strerror(error)};
}

// Every signal, also the one for a file that may not grow, is for other threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

struct FileWriter::Shared {
  std::string path;
  UniqueFd fd;
  size_t waiting_bytes_max = 0;
  OnFailure on_failure;

  Mutex mutex;
  CondVar changed;
  std::string waiting KINTSUGI_GUARDED_BY(mutex);
  bool finishing KINTSUGI_GUARDED_BY(mutex) = false;
  bool failed KINTSUGI_GUARDED_BY(mutex) = false;
  bool done KINTSUGI_GUARDED_BY(mutex) = false;

  void Run();
  Status WriteAll(std::string_view bytes);
};

Status FileWriter::Shared::WriteAll(std::string_view bytes) {
  const int error = kintsugi::WriteAll(fd.get(), bytes);
  return error == 0 ? Status::Ok() : SystemError("write to", path, error);
}

void FileWriter::Shared::Run() {
  MutexLock lock(mutex);
  while (true) {
    changed.Wait(lock, [this]() KINTSUGI_REQUIRES(mutex) { return finishing || !waiting.empty(); });
    if (waiting.empty()) break;
    const std::string bytes = std::exchange(waiting, {});
    lock.Unlock();
    const Status written = WriteAll(bytes);
    if (!written.ok()) on_failure(written);
    lock.Lock();
    if (written.ok()) continue;
    failed = true;
    break;
  }
  // The thread that waits for the end may let go of all that the handler refers to, while this thread is still on its
  // way out.
  on_failure = nullptr;
  done = true;
  changed.NotifyAll();
}

Result<std::unique_ptr<FileWriter>> FileWriter::Open(const std::string& path, size_t waiting_bytes_max,
                                                     OnFailure on_failure) {
  auto shared = std::make_shared<Shared>();
  shared->path = path;
  shared->waiting_bytes_max = waiting_bytes_max;
  shared->on_failure = std::move(on_failure);
  // Not truncated but made anew: a reader of an earlier run's file goes on reading that one.
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISLNK(found.st_mode))
    return Status(StatusCode::kInvalidArgument, "cannot write a journal to '" + path + "': it is no file");
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError("replace", path, errno);
  shared->fd = UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!shared->fd.valid()) return SystemError("write", path, errno);
  const SignalsBlocked blocked;
  try {
    std::thread([shared] { shared->Run(); }).detach();
  } catch (const std::system_error& error) {
    return Status(StatusCode::kResourceExhausted, "no thread to write '" + path + "': " + error.what());
  }
  return std::unique_ptr<FileWriter>(new FileWriter(std::move(shared)));
}

bool FileWriter::Write(std::string&& bytes, bool whatever) {
  const MutexLock lock(shared_->mutex);
  if (shared_->failed || shared_->done) return false;
  if (!whatever && shared_->waiting.size() + bytes.size() > shared_->waiting_bytes_max) return false;
  shared_->waiting += bytes;
  shared_->changed.NotifyAll();
  return true;
}

FileWriter::~FileWriter() {
  MutexLock lock(shared_->mutex);
  shared_->finishing = true;
  shared_->changed.NotifyAll();
  shared_->changed.WaitFor(lock, kFinishLimit, [this]() KINTSUGI_REQUIRES(shared_->mutex) { return shared_->done; });
}

}  // namespace kintsugi::journal
