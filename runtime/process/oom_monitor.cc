#include "runtime/process/oom_monitor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <vector>

namespace kintsugi {
namespace {

// The first pid namespace has this inode on every Linux; only there are our pids those of the kernel log.
constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;
// More new records than this in one look and the older ones are not searched.
constexpr int kMaxLogRecords = 4096;
constexpr size_t kMaxVictims = 64;

template <typename Number>
std::optional<Number> LeadingNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::string ReadSmallFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Where the counter of this process's memory cgroup may lie, best first.
std::vector<std::string> CounterCandidates() {
  std::vector<std::string> candidates;
  std::istringstream groups(ReadSmallFile("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    // Inside a container the path is the host's while only its own part is mounted: then the mount's root is the group.
    if (controllers.empty()) {
      candidates.push_back("/sys/fs/cgroup" + path + "/memory.events");
      candidates.push_back("/sys/fs/cgroup/memory.events");
    } else if (controllers == "memory") {
      candidates.push_back("/sys/fs/cgroup/memory" + path + "/memory.oom_control");
      candidates.push_back("/sys/fs/cgroup/memory/memory.oom_control");
    }
  }
  candidates.push_back("/proc/vmstat");
  return candidates;
}

}  // namespace

std::optional<uint64_t> ParseOomKills(std::string_view counters) {
  constexpr std::string_view kKey = "oom_kill ";
  for (size_t at = 0; at < counters.size();) {
    const size_t end = std::min(counters.find('\n', at), counters.size());
    const std::string_view line = counters.substr(at, end - at);
    if (line.starts_with(kKey)) return LeadingNumber<uint64_t>(line.substr(kKey.size()));
    at = end + 1;
  }
  return std::nullopt;
}

std::optional<pid_t> ParseOomVictim(std::string_view record) {
  constexpr std::string_view kKey = "Killed process ";
  // Both kinds of the killer's message begin their text so; a user's own message in the log does not name a victim.
  const size_t text = std::min(record.find(';'), record.size());
  const std::string_view message = record.substr(text);
  if (!message.starts_with(";Out of memory") && !message.starts_with(";Memory cgroup out of memory")) {
    return std::nullopt;
  }
  const size_t at = message.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  return LeadingNumber<pid_t>(message.substr(at + kKey.size()));
}

OomMonitor::Sources OomMonitor::FindSources() {
  Sources sources;
  for (const std::string& path : CounterCandidates()) {
    if (!ParseOomKills(ReadSmallFile(path))) continue;
    sources.counter_path = path;
    break;
  }
  struct stat status {};
  if (::stat("/proc/self/ns/pid", &status) == 0 && status.st_ino == kInitialPidNamespace) {
    sources.kernel_log_path = "/dev/kmsg";
  }
  return sources;
}

OomMonitor::OomMonitor(const Sources& sources) : counter_path_(sources.counter_path) {
  explained_ = ReadCounter().value_or(0);
  settled_ = explained_;
  if (sources.kernel_log_path.empty()) return;
  kernel_log_.Reset(::open(sources.kernel_log_path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (kernel_log_.valid()) ::lseek(kernel_log_.get(), 0, SEEK_END);
}

std::optional<uint64_t> OomMonitor::ReadCounter() const {
  if (counter_path_.empty()) return std::nullopt;
  return ParseOomKills(ReadSmallFile(counter_path_));
}

void OomMonitor::ReadLog() {
  if (!kernel_log_.valid()) return;
  std::array<char, 8192> record;
  for (int i = 0; i < kMaxLogRecords; ++i) {
    const ssize_t size = ::read(kernel_log_.get(), record.data(), record.size());
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: records were overwritten, the next is here
    if (size <= 0) return;
    const std::optional<pid_t> victim = ParseOomVictim(std::string_view(record.data(), static_cast<size_t>(size)));
    if (!victim) continue;
    victims_.push_back(*victim);
    if (victims_.size() > kMaxVictims) victims_.pop_front();
  }
}

bool OomMonitor::Claim(pid_t pid) {
  ReadLog();
  const auto victim = std::find(victims_.begin(), victims_.end(), pid);
  const bool named = victim != victims_.end();
  if (named) victims_.erase(victim);
  const bool grown = ReadCounter().value_or(explained_) > explained_;
  if (grown) ++explained_;
  return named || grown;
}

void OomMonitor::Settle() {
  explained_ = std::max(explained_, settled_);
  settled_ = ReadCounter().value_or(settled_);
}

}  // namespace kintsugi
