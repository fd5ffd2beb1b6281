#include "runtime/process/rank_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/unique_fd.h"
#include "runtime/base/write_all.h"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;

// A launcher with thousands of ranks has no thousands of descriptors to spare: then all are closed and opened anew.
constexpr size_t kFilesOpenMax = 256;
// A file that could not be opened is not tried again before: a folder that is gone would be looked for at every line.
constexpr Duration kOpenAgainAfter = std::chrono::seconds(1);
constexpr int kSpares = -1;  // a place of the queue: no rank

// One block, through to the disk: a full or a read-only one says so here. Gives an errno, or 0.
int Probe(const fs::path& folder) {
  const std::string file = (folder / (".kintsugi-probe-" + std::to_string(::getpid()))).string();
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return errno;
  const std::vector<char> block(4096);
  int error = WriteAll(fd.get(), {block.data(), block.size()});
  if (error == 0 && ::fsync(fd.get()) != 0) error = errno;
  ::unlink(file.c_str());
  return error;
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[40];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S%z", &parts);
  return std::string(text, size).insert(size - 2, ":");
}

}  // namespace

// The files, on the queue's thread.
class RankFiles::Folder final : public QueuedOutput {
 public:
  Folder(const Options& options, std::shared_ptr<LogSink> log)
      : directory_(options.directory), node_(options.node), log_(std::move(log)) {}

  bool Write(int place, std::string_view text, const std::atomic<bool>&) override {
    File& file = files_[place];
    const int error = Append(place, file, text);
    if (error == 0) return true;
    ++file.lost;
    if (std::exchange(file.trouble, error) != error)
      log_->Write(LogLevel::kWarning, LogLine("output_lost", {{"file", NameOf(place)},
                                                              {"why", std::strerror(error)},
                                                              {"hint",
                                                               "the run goes on; lines are lost until it can be "
                                                               "written again"}}));
    return false;
  }

  Remark OnDropped(uint64_t texts) override {
    log_->Write(LogLevel::kWarning,
                LogLine("output_dropped", {{"directory", directory_},
                                           {"lines", std::to_string(texts)},
                                           {"why", "they came faster than they could be written"}}));
    return {};
  }

 private:
  struct File {
    UniqueFd fd;
    int trouble = 0;      // an unchanged reason is not repeated
    uint64_t lost = 0;    // lines, since it could be written last
    bool broken = false;  // a part of a line stands at its end
    std::optional<TimePoint> not_before;
  };

  std::string NameOf(int place) const {
    return directory_ + (place == kSpares ? "/spares-node-" + node_ : "/rank-" + std::to_string(place)) + ".log";
  }

  int Append(int place, File& file, std::string_view text) {
    if (!file.fd.valid()) {
      const TimePoint now = SteadyClock::SteadyNow();
      if (file.not_before && now < *file.not_before) return file.trouble;
      if (const int error = Open(place, file)) {
        file.not_before = now + kOpenAgainAfter;
        return error;
      }
    }
    if (file.lost > 0) {
      const std::string gap = (file.broken ? "\n" : "") + ("--- kintsugi: " + std::to_string(file.lost)) +
                              " lines are missing here: " + std::strerror(file.trouble) + "\n";
      if (const int error = WriteAll(file.fd.get(), gap)) return error;
      log_->Write(LogLevel::kWarning,
                  LogLine("output_goes_on", {{"file", NameOf(place)}, {"lines_lost", std::to_string(file.lost)}}));
      file.lost = 0;
      file.trouble = 0;
    }
    const int error = WriteAll(file.fd.get(), text);
    file.broken = error != 0;
    return error;
  }

  int Open(int place, File& file) {
    if (open_ == kFilesOpenMax) CloseAll();
    file.fd.Reset(::open(NameOf(place).c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
    if (!file.fd.valid()) return errno;
    ++open_;
    return 0;
  }

  void CloseAll() {
    for (auto& [place, file] : files_) file.fd.Reset();
    open_ = 0;
  }

  const std::string directory_, node_;
  const std::shared_ptr<LogSink> log_;
  std::map<int, File> files_;
  size_t open_ = 0;
};

RankFiles::RankFiles(const Options& options, std::unique_ptr<Folder> folder)
    : job_(options.job), queue_(std::move(folder), options.queue_bytes_max) {}

Result<std::shared_ptr<RankFiles>> RankFiles::Open(Options options, std::shared_ptr<LogSink> log) {
  std::error_code error;
  const fs::path folder = fs::absolute(options.directory, error);
  if (!error) fs::create_directories(folder, error);
  if (!error)
    if (const int probed = Probe(folder)) error = std::error_code(probed, std::generic_category());
  if (error)
    return Status(StatusCode::kUnavailable,
                  "'" + options.directory + "' cannot be written: " + error.message() +
                      "; give a folder that this user may write to, on a disk that is not full");
  options.directory = folder.string();
  auto files = std::make_unique<Folder>(options, std::move(log));
  return std::shared_ptr<RankFiles>(new RankFiles(options, std::move(files)));
}

void RankFiles::Mark(Rank rank, const std::string& text) {
  queue_.Put(rank.value(), "--- kintsugi: rank " + rank.ToString() + ", " + text + "\n");
}

void RankFiles::OnBegan(Rank rank, Incarnation life, pid_t process) {
  OnOutputEnd(rank);
  Mark(rank, "life " + life.ToString() + ", process " + std::to_string(process) + " began at " + Now() + " (job " +
                 job_ + ")");
}

void RankFiles::OnEnded(Rank rank, Incarnation life, std::string_view cause) {
  OnOutputEnd(rank);
  const MutexLock lock(mutex_);
  ends_[rank] = "life " + life.ToString() + " " + std::string(cause);
}

void RankFiles::OnOutputEnd(Rank rank) {
  const MutexLock lock(mutex_);
  if (const auto end = ends_.extract(rank)) Mark(rank, end.mapped());
}

RankFiles::~RankFiles() {
  for (const auto& [rank, end] : ends_) Mark(rank, end);
}

void RankFiles::OnLine(Rank rank, std::string_view line) { queue_.Put(rank.value(), std::string(line) + "\n"); }

void RankFiles::OnSpareLine(std::string_view line) { queue_.Put(kSpares, std::string(line) + "\n"); }

}  // namespace kintsugi
