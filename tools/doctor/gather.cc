#include "tools/doctor/gather.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/base/unique_fd.h"
#include "runtime/process/child_process.h"
#include "tools/runs/run_folder.h"

namespace kintsugi::doctor {
namespace {

namespace fs = std::filesystem;

constexpr Duration kProgramLimit = std::chrono::seconds(20);  // torch takes a while to load

struct Answer {
  std::string out;      // standard output
  std::string trouble;  // empty: it ended well
  bool found = true;    // the program is there
};

Answer AskProgram(const std::string& program, const std::vector<std::string>& args) {
  boost::asio::io_context io;
  boost::asio::steady_timer limit(io);
  Answer answer;
  bool late = false;
  ChildProcess::Callbacks callbacks;
  callbacks.on_line = [&](OutputStream stream, std::string_view line) {
    if (stream == OutputStream::kStdout) answer.out.append(line).append("\n");
  };
  callbacks.on_exit = [&](const ExitCause& cause) {
    if (cause.kind == ExitKind::kExitCode && cause.code == 0) return;
    answer.trouble = cause.last_stderr_lines.empty() ? cause.text : cause.text + ": " + cause.last_stderr_lines.back();
  };
  callbacks.on_output_end = [&] { io.stop(); };
  ProcessSpec spec;
  spec.program = program;
  spec.args = args;
  const auto child = ChildProcess::Spawn(io, spec, std::move(callbacks));
  if (!child.ok()) return {"", child.status().message(), false};
  limit.expires_after(kProgramLimit);
  limit.async_wait([&](const boost::system::error_code& error) {
    late = !error;
    io.stop();
  });
  io.run();
  if (late) answer.trouble = "it did not answer within 20 s";
  return answer;
}

std::string FirstLine(const char* file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

KernelFacts Kernel() {
  KernelFacts facts;
  utsname system{};
  if (uname(&system) == 0) facts.release = system.release;
  facts.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))).valid();
  facts.memfd = UniqueFd(memfd_create("kintsugi-doctor", MFD_CLOEXEC)).valid();
  return facts;
}

bool CanListen(in_addr_t address, uint16_t port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(address);
  place.sin_port = htons(port);
  // As listeners of ours do it: what still lingers of closed connections is in nobody's way.
  const int on = 1;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&place), sizeof place) == 0 && listen(fd.get(), 1) == 0;
}

PortFacts Ports(const PortRange& range) {
  PortFacts facts;
  facts.any_free = CanListen(INADDR_LOOPBACK, 0);
  if (!range.any())
    for (int port = range.first; port <= range.last; ++port)
      if (!CanListen(INADDR_ANY, static_cast<uint16_t>(port))) facts.taken.push_back(static_cast<uint16_t>(port));
  std::ifstream in("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0, last = 0;
  if (in >> first >> last && first > 0 && last >= first && last <= 65535)
    facts.system = PortRange{static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
  return facts;
}

SharedMemoryFacts SharedMemory() {
  SharedMemoryFacts facts;
  struct statvfs found {};
  if (statvfs("/dev/shm", &found) != 0) return facts;
  facts.there = true;
  facts.writable = access("/dev/shm", W_OK) == 0;
  facts.bytes = static_cast<uint64_t>(found.f_blocks) * found.f_frsize;
  facts.free_bytes = static_cast<uint64_t>(found.f_bavail) * found.f_frsize;
  return facts;
}

uint64_t LimitOf(rlim_t value) { return value == RLIM_INFINITY ? LimitFacts::kUnlimited : value; }

LimitFacts Limits() {
  LimitFacts facts;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.files_soft = LimitOf(limit.rlim_cur);
    facts.files_hard = LimitOf(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_bytes = LimitOf(limit.rlim_cur);
  if (getrlimit(RLIMIT_CORE, &limit) == 0) facts.core_bytes = LimitOf(limit.rlim_cur);
  facts.core_pattern = FirstLine("/proc/sys/kernel/core_pattern");
  return facts;
}

std::optional<bool> ClockSynchronized() {
  timex state{};
  const int answer = adjtimex(&state);
  if (answer < 0) return std::nullopt;
  return answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

FileFacts File(const std::string& file) {
  FileFacts facts;
  facts.file = file;
  struct stat found {};
  if (stat(file.c_str(), &found) != 0 || access(file.c_str(), R_OK) != 0) {
    facts.trouble = std::strerror(errno);
    return facts;
  }
  facts.own = found.st_uid == geteuid();
  facts.of_root = found.st_uid == 0;
  facts.mode = found.st_mode & 07777;
  facts.bytes = static_cast<uint64_t>(found.st_size);
  return facts;
}

SaveFacts Saves(const std::string& directory, Status writable) {
  SaveFacts facts;
  facts.directory = directory;
  facts.writable = std::move(writable);
  // Where it is to be made later: the nearest folder that is there.
  std::error_code error;
  fs::path at = fs::absolute(directory, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  struct statvfs space {};
  if (statvfs(at.c_str(), &space) == 0) facts.free_bytes = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  struct statfs kind {};
  facts.in_memory = statfs(at.c_str(), &kind) == 0 && (kind.f_type == TMPFS_MAGIC || kind.f_type == RAMFS_MAGIC);
  return facts;
}

// They are opened lazily, and nothing of them is called but NCCL's version.
void* OpenLibrary(const char* variable, const char* name) {
  const char* const given = std::getenv(variable);
  return dlopen(given != nullptr && *given != '\0' ? given : name, RTLD_LAZY | RTLD_LOCAL);
}

std::string NcclVersion(void* library) {
  using GetVersion = int (*)(int*);
  const auto get = reinterpret_cast<GetVersion>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0 || version <= 0) return "";
  return NcclVersionText(version);
}

// A daemon that runs serves every CUDA program of its user; the variables name another's.
std::string MpsInUse() {
  for (const char* name : {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"})
    if (std::getenv(name)) return std::string(name) + " is set";
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error))
    if (FirstLine((at->path() / "comm").c_str()).starts_with("nvidia-cuda-mps"))
      return "nvidia-cuda-mps-control runs (process " + at->path().filename().string() + ")";
  return "";
}

DriverFacts Driver() {
  DriverFacts facts;
  facts.library = OpenLibrary("KINTSUGI_CUDA_LIBRARY", "libcuda.so.1") != nullptr;
  if (void* nccl = OpenLibrary("KINTSUGI_NCCL_LIBRARY", "libnccl.so.2")) {
    facts.nccl = true;
    facts.nccl_version = NcclVersion(nccl);
  }
  const Answer answer = AskProgram("nvidia-smi", {kGpuQuery, "--format=csv,noheader,nounits"});
  if (!answer.found) return facts;
  facts.gpu_trouble = answer.trouble;
  if (!answer.trouble.empty()) return facts;
  Result<std::vector<GpuFacts>> gpus = ReadGpus(answer.out);
  if (!gpus.ok()) {
    facts.gpu_trouble = gpus.status().message();
    return facts;
  }
  facts.gpus = std::move(*gpus);
  facts.mps = MpsInUse();
  if (const char* order = std::getenv("CUDA_DEVICE_ORDER")) facts.device_order = order;
  for (const char* query : kSlowedQueries) {
    const Answer slowed = AskProgram("nvidia-smi", {query, "--format=csv,noheader"});
    if (!slowed.trouble.empty()) continue;  // a driver that does not know these names
    const std::map<int, std::string> reasons = ReadSlowed(slowed.out);
    for (GpuFacts& gpu : *facts.gpus)
      if (const auto found = reasons.find(gpu.index); found != reasons.end()) gpu.slowed_by = found->second;
    break;
  }
  if (facts.gpus->size() > 1) facts.peer_gaps = ReadPeerGaps(AskProgram("nvidia-smi", {"topo", "-p2p", "r"}).out);
  return facts;
}

PythonFacts Python(const std::string& program) {
  PythonFacts facts;
  facts.program = program;
  const Answer answer = AskProgram(
      program, {"-c",
                "import sys, importlib.metadata as m\n"
                "import kintsugi\n"
                "try:\n"
                "    import torch; t = 'torch ' + torch.__version__\n"
                "    import kintsugi.torch\n"
                "except ModuleNotFoundError as e:\n"
                "    if e.name != 'torch': raise\n"
                "    t = 'no torch'\n"
                "print('Python %d.%d.%d' % sys.version_info[:3], 'kintsugi ' + str(getattr(kintsugi, '__version__', "
                "'of no version')), t, sep=', ')"});
  facts.trouble = answer.trouble;
  facts.versions = answer.out.substr(0, answer.out.find('\n'));
  return facts;
}

}  // namespace

HostFacts Gather(const GatherOptions& options) {
  HostFacts facts;
  facts.kernel = Kernel();
  facts.ports = Ports(options.ports);
  facts.shared_memory = SharedMemory();
  facts.limits = Limits();
  facts.clock_synchronized = ClockSynchronized();
  facts.run_base = runs::RunBase();
  std::error_code error;
  facts.run_base_own = fs::exists(facts.run_base, error)
                           ? runs::IsOwn(facts.run_base)
                           : access(fs::path(facts.run_base).parent_path().c_str(), W_OK) == 0;
  if (!options.save_dir.empty()) facts.save = Saves(options.save_dir, options.check_save_dir(options.save_dir));
  if (!options.secret_file.empty()) facts.secret = File(options.secret_file);
  if (!options.tls.key.empty()) facts.tls_key = File(options.tls.key);
  if (options.tls.any()) {
    const auto tls = net::TlsContext::Load(options.tls);
    facts.tls = tls.status();
    if (tls.ok())
      facts.tls_left =
          std::chrono::duration_cast<std::chrono::seconds>((*tls)->ends() - std::chrono::system_clock::now());
  }
  facts.driver = Driver();
  if (!options.python.empty()) facts.python = Python(options.python);
  return facts;
}

}  // namespace kintsugi::doctor
