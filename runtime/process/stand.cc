#include "runtime/process/stand.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/base/unique_fd.h"

namespace kintsugi {
namespace {

constexpr size_t kTextMost = 256 << 10;
constexpr size_t kFramesMost = 32;

std::string ReadAll(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (fd.get() < 0) return text;
  std::array<char, 4096> piece;
  for (ssize_t got; text.size() < kTextMost && (got = read(fd.get(), piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<size_t>(got));
  return text;
}

// What a rank may stand in for long.
constexpr std::pair<long, std::string_view> kCalls[] = {
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_pread64, "pread"},
    {SYS_pwrite64, "pwrite"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_openat, "open"},
    {SYS_fsync, "fsync"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_futex, "futex"},
    {SYS_nanosleep, "sleep"},
    {SYS_clock_nanosleep, "sleep"},
#ifdef SYS_poll
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_pause, "pause"},
#endif
    {SYS_ppoll, "poll"},
    {SYS_pselect6, "select"},
    {SYS_epoll_pwait, "epoll_wait"},
    {SYS_connect, "connect"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept"},
    {SYS_recvfrom, "recv"},
    {SYS_recvmsg, "recv"},
    {SYS_sendto, "send"},
    {SYS_sendmsg, "send"},
    {SYS_wait4, "wait"},
    {SYS_waitid, "wait"},
    {SYS_ioctl, "ioctl"},
    {SYS_rt_sigsuspend, "sigsuspend"},
    {SYS_rt_sigtimedwait, "sigwait"},
};

bool IsOfThePrograms(std::string_view file, std::string_view own_folder) {
  if (!own_folder.empty() && file.substr(0, own_folder.size()) == own_folder) return false;
  for (const std::string_view part : {"/site-packages/", "/dist-packages/", "/lib/python3"})
    if (file.find(part) != std::string_view::npos) return false;
  return !file.empty() && file.front() != '<';
}

// Where torch calls what has no Python frames, and may wait for other ranks there.
bool MayWaitForOthers(std::string_view file) {
  for (const std::string_view part :
       {"/torch/distributed/", "/torch/_ops.py", "/torch/autograd/graph.py", "/torch/nn/parallel/distributed.py"})
    if (file.find(part) != std::string_view::npos) return true;
  return false;
}

// The lines between the head of that thread and the next head.
std::string_view BlockOf(std::string_view traceback, uint64_t thread) {
  std::array<char, 32> wanted{};
  (void)std::snprintf(wanted.data(), wanted.size(), "0x%016llx", static_cast<unsigned long long>(thread));
  for (size_t at = 0; at < traceback.size();) {
    size_t end = traceback.find('\n', at);
    if (end == std::string_view::npos) end = traceback.size();
    const std::string_view line = traceback.substr(at, end - at);
    at = end + 1;
    if (line.find(wanted.data()) == std::string_view::npos || line.find("hread ") == std::string_view::npos) continue;
    size_t until = at;
    while (until < traceback.size() && traceback[until] == ' ') {
      const size_t next = traceback.find('\n', until);
      until = next == std::string_view::npos ? traceback.size() : next + 1;
    }
    return traceback.substr(std::min(at, traceback.size()), until - std::min(at, until));
  }
  return {};
}

}  // namespace

PythonFrames FramesOf(std::string_view traceback, uint64_t thread, std::string_view own_folder) {
  PythonFrames frames;
  bool looked = false;
  const std::string_view block = BlockOf(traceback, thread);
  for (size_t at = 0; at < block.size() && frames.stack.size() < kFramesMost;) {
    size_t end = block.find('\n', at);
    if (end == std::string_view::npos) end = block.size();
    const std::string_view line = block.substr(at, end - at);
    at = end + 1;
    // `  File "/x/loader.py", line 88 in fetch`
    const size_t open = line.find('"'), close = line.rfind("\", line ");
    if (open == std::string_view::npos || close == std::string_view::npos || close <= open) continue;
    const std::string_view file = line.substr(open + 1, close - open - 1);
    const std::string_view rest = line.substr(close + 8);
    const size_t in = rest.find(" in ");
    const size_t slash = file.rfind('/');
    std::string frame(slash == std::string_view::npos ? file : file.substr(slash + 1));
    frame += ":" + std::string(rest.substr(0, in));
    if (in != std::string_view::npos) frame += " (" + std::string(rest.substr(in + 4)) + ")";
    if (frames.at.empty() && IsOfThePrograms(file, own_folder)) frames.at = frame;
    const bool own = !own_folder.empty() && file.starts_with(own_folder);
    if (!own && !std::exchange(looked, true)) frames.in_torch = MayWaitForOthers(file);
    frames.stack.push_back(std::move(frame));
  }
  if (frames.at.empty() && !frames.stack.empty()) frames.at = frames.stack.front();
  return frames;
}

std::string SystemCallName(std::string_view proc_syscall) {
  if (proc_syscall.empty() || !std::isdigit(static_cast<unsigned char>(proc_syscall.front()))) return "";
  const long number = std::strtol(std::string(proc_syscall.substr(0, 12)).c_str(), nullptr, 10);
  for (const auto& [known, name] : kCalls)
    if (known == number) return std::string(name);
  return "";
}

std::string StandReader::Proc(const std::string& name) const {
  const std::string pid = std::to_string(pid_);
  return ReadAll("/proc/" + pid + "/task/" + pid + "/" + name);
}

std::string StandReader::Traceback() const {
  return "/proc/" + std::to_string(pid_) + "/fd/" + std::to_string(marks_.stack_fd.load());
}

void StandReader::Begin() {
  // What another process did not get to write yet is no answer.
  const UniqueFd file(marks_.stack_fd >= 0 ? open(Traceback().c_str(), O_WRONLY | O_CLOEXEC) : -1);
  is_written_ = file.get() >= 0 && ftruncate(file.get(), 0) == 0;
  asked_ = marks_.asked.fetch_add(1) + 1;
  syscall(SYS_futex, &marks_.asked, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// By a signal, since the thread does not get Python's lock: so no other one runs and changes what is read.
void StandReader::WriteWithoutLock() const {
  const int signal = marks_.stack_signal, thread = marks_.stack_thread;
  if (signal <= 0 || signal >= NSIG || thread <= 0 || syscall(SYS_tgkill, pid_, thread, signal) != 0) return;
  for (int tries = 0; tries < 20 && ReadAll(Traceback()).empty(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it is not written at once
}

ProcessStand StandReader::Read() {
  ProcessStand stand;
  // After the name, which may hold anything, in brackets.
  const std::string stat = Proc("stat");
  const size_t bracket = stat.rfind(')');
  if (bracket != std::string::npos && bracket + 2 < stat.size()) stand.state = stat.substr(bracket + 2, 1);
  stand.call = SystemCallName(Proc("syscall"));
  const bool runs = stand.state != "T" && stand.state != "t";
  stand.python_stopped = runs && marks_.python == 1 && asked_ != 0 && marks_.awake != asked_;
  if (!is_written_) return stand;
  if (stand.python_stopped) WriteWithoutLock();
  const std::string text = ReadAll(Traceback());
  const std::string_view folder(marks_.own_folder, strnlen(marks_.own_folder, MarkMemory::kFolderBytes));
  PythonFrames frames = FramesOf(text, marks_.main_thread, folder);
  stand.at = std::move(frames.at);
  stand.stack = std::move(frames.stack);
  stand.in_torch = frames.in_torch;
  return stand;
}

uint32_t AwaitQuestion(MarkMemory& marks, uint32_t answered) {
  for (;;) {
    const uint32_t asked = marks.asked;
    if (asked != answered) return asked;
    syscall(SYS_futex, &marks.asked, FUTEX_WAIT, asked, nullptr, nullptr, 0);
  }
}

}  // namespace kintsugi
