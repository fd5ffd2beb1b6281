#include "runtime/launcher/workers/stack_log.h"

#include <fstream>
#include <utility>

#include "runtime/process/stack_dump.h"

namespace kintsugi {
namespace {

// The name of the first thread and its newest frames.
constexpr int kShownLines = 12;
constexpr size_t kBytesMax = 4 << 20;

class OneFile final : public QueuedOutput {
 public:
  explicit OneFile(std::string path) : path_(std::move(path)) {}
  bool Write(int /*place*/, std::string_view text, const std::atomic<bool>& /*given_up*/) override {
    std::ofstream file(path_);
    file << text;
    return static_cast<bool>(file.flush());
  }
  Remark OnDropped(uint64_t /*texts*/) override { return {}; }

 private:
  const std::string path_;
};

std::string PathIn(const std::string& directory, const RankIncarnation& who) {
  if (directory.empty()) return "";
  return directory + "/" + std::string(kStacksFilePrefix) + "rank-" + who.rank.ToString() + "-life-" +
         who.incarnation.ToString() + ".txt";
}

}  // namespace

StackLog::StackLog(const RankIncarnation& who, const std::string& directory, std::shared_ptr<LogSink> log)
    : who_(who), path_(PathIn(directory, who)), log_(std::move(log)) {}

void StackLog::Add(std::string_view line) {
  if (++lines_ <= kShownLines)
    log_->Write(LogLevel::kWarning, LogLine("stack", {{"rank", who_.rank.ToString()}, {"line", std::string(line)}}));
  if (!path_.empty()) text_.append(line).append("\n");
}

void StackLog::Close() {
  if (lines_ <= kShownLines) return;
  std::string where = "not kept";
  if (!path_.empty()) {
    where = path_;
    file_ = std::make_unique<WriteQueue>(std::make_unique<OneFile>(path_), kBytesMax);
    file_->Put(0, std::exchange(text_, {}));
  }
  log_->Write(LogLevel::kWarning, LogLine("stacks", {{"rank", who_.rank.ToString()},
                                                     {"more_lines", std::to_string(lines_ - kShownLines)},
                                                     {"all_in", where}}));
}

}  // namespace kintsugi
