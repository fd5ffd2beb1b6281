#include "runtime/net/file_follower.h"

#include <pthread.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>
#include <utility>

#include "runtime/base/mutex.h"

namespace kintsugi::net {

std::vector<FileMark> MarksOf(const std::vector<std::string>& files) {
  std::vector<FileMark> marks;
  for (const std::string& file : files) {
    struct stat found {};
    if (::stat(file.c_str(), &found) != 0) found = {};
    marks.emplace_back(found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
  }
  return marks;
}

struct FileFollower::Shared {
  Shared(std::vector<std::string> files_given, std::vector<FileMark> known, std::function<bool()> taker)
      : files(std::move(files_given)), marks(std::move(known)), take(std::move(taker)) {}

  // The thread's main function.
  void Run() {
    MutexLock lock(mutex);
    while (!changed.WaitFor(lock, kLookEvery, [this]() KINTSUGI_REQUIRES(mutex) { return stopping; })) {
      lock.Unlock();
      std::vector<FileMark> now = MarksOf(files);
      lock.Lock();
      if (now == marks || stopping) continue;
      lock.Unlock();
      const bool taken = take();
      lock.Lock();
      if (taken) marks = std::move(now);
    }
    ended = true;
    changed.NotifyAll();
  }

  const std::vector<std::string> files;
  std::vector<FileMark> marks;  // the thread's
  const std::function<bool()> take;
  Mutex mutex;
  CondVar changed;
  bool stopping KINTSUGI_GUARDED_BY(mutex) = false;
  bool ended KINTSUGI_GUARDED_BY(mutex) = false;
};

FileFollower::FileFollower(std::vector<std::string> files, std::vector<FileMark> known, std::function<bool()> take)
    : shared_(std::make_shared<Shared>(std::move(files), std::move(known), std::move(take))) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread([shared = shared_] { shared->Run(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FileFollower::~FileFollower() {
  MutexLock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.NotifyAll();
  (void)shared_->changed.WaitFor(lock, kEndLimit,
                                 [this]() KINTSUGI_REQUIRES(shared_->mutex) { return shared_->ended; });
}

}  // namespace kintsugi::net
