#include "tools/doctor/checks.h"

#include <algorithm>
#include <cstdio>

#include "runtime/net/tls.h"

namespace kintsugi::doctor {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;
constexpr uint64_t kSecretBytes = 32;
// A rank listens on some twenty ports for each of its groups while they connect.
constexpr int kPortsOfAGroup = 20;
// What NCCL and torch's data loaders put there for one rank, roughly.
constexpr uint64_t kSharedBytesOfARank = 64 * kMiB;
// What a launcher has open beside its ranks: files of their output, sockets, the journal.
constexpr uint64_t kFilesBeside = 512;
// ... and for each rank: pipes, page, connection, and the blocks of its memory (tools/CAPACITY.md).
constexpr uint64_t kFilesOfARank = 16;
constexpr int64_t kHotCelsius = 88;
constexpr int64_t kUsedMibOfNobody = 1024;  // a driver keeps some itself

std::string Size(uint64_t bytes) {
  if (bytes == LimitFacts::kUnlimited) return "unlimited";
  char text[32];
  if (bytes >= kGiB)
    std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  else
    std::snprintf(text, sizeof text, "%.0f MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  return text;
}

std::string Count(uint64_t count) { return count == LimitFacts::kUnlimited ? "unlimited" : std::to_string(count); }

Finding Ok(const char* check, std::string found) { return {check, Severity::kOk, std::move(found), ""}; }
Finding Warning(const char* check, std::string found, std::string todo) {
  return {check, Severity::kWarning, std::move(found), std::move(todo)};
}
Finding Error(const char* check, std::string found, std::string todo) {
  return {check, Severity::kError, std::move(found), std::move(todo)};
}

Finding CheckKernel(const KernelFacts& kernel) {
  if (kernel.pidfd && kernel.memfd) return Ok("kernel", "Linux " + kernel.release + ", with pidfds and memfds");
  return Error("kernel", "Linux " + kernel.release + " without " + (kernel.pidfd ? "memfds" : "pidfds"),
               "run on Linux 5.4 or newer, in a container whose seccomp profile lets pidfd_open and memfd_create pass");
}

std::string Listed(const std::vector<uint16_t>& ports) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ports.size(), kShown); ++i) text += (i > 0 ? ", " : "") + std::to_string(ports[i]);
  return text + (ports.size() > kShown ? ", ..." : "");
}

Finding CheckPorts(const PortFacts& ports, const Needs& needs) {
  if (needs.ports.any()) {
    if (ports.any_free) return Ok("ports", "any; one is free on 127.0.0.1");
    return Error("ports", "no port on 127.0.0.1 can be listened at",
                 "see ip_local_port_range (sysctl net.ipv4) and what listens here (ss -ltn)");
  }
  const int size = needs.ports.size(), free = size - static_cast<int>(ports.taken.size());
  const std::string found = std::to_string(free) + " of the " + std::to_string(size) + " ports " +
                            needs.ports.ToString() + " are free" +
                            (ports.taken.empty() ? "" : "; taken: " + Listed(ports.taken));
  const int least = needs.ranks_here + 4, plenty = kPortsOfAGroup * needs.ranks_here;
  if (free < least)
    return Error("ports", found,
                 "free or widen the range: " + std::to_string(needs.ranks_here) + " ranks need " +
                     std::to_string(least) + " at least, a hundred each are plenty");
  if (free < plenty)
    return Warning("ports", found,
                   "widen the range: each rank listens on some twenty for each of its groups while "
                   "they connect; a hundred for each rank are plenty");
  const bool lent = ports.system && ports.system->first <= needs.ports.last && needs.ports.first <= ports.system->last;
  if (lent)
    return Warning(
        "ports", found + ", and the system lends them to outgoing connections (" + ports.system->ToString() + ")",
        "choose a range outside of it, or: sysctl net.ipv4.ip_local_reserved_ports=" + needs.ports.ToString());
  return Ok("ports", found);
}

Finding CheckSharedMemory(const SharedMemoryFacts& shared, const Needs& needs) {
  if (!shared.there || !shared.writable)
    return Warning("shared memory", shared.there ? "/dev/shm cannot be written" : "there is no /dev/shm",
                   "mount one (docker run --shm-size 16g): NCCL and torch's data loaders use it; Kintsugi does not");
  const uint64_t wanted = kSharedBytesOfARank * static_cast<uint64_t>(needs.ranks_here);
  const std::string found = "/dev/shm: " + Size(shared.free_bytes) + " of " + Size(shared.bytes) + " free";
  if (shared.free_bytes >= wanted) return Ok("shared memory", found);
  const bool small = shared.bytes < wanted;
  return Warning("shared memory", found,
                 (small ? "make it larger: mount -o remount,size=16G /dev/shm, or docker run --shm-size 16g"
                        : std::string("remove what earlier programs left there (ls -l /dev/shm)")) +
                     "; NCCL and torch's data loaders of " + std::to_string(needs.ranks_here) + " ranks take about " +
                     Size(wanted));
}

Finding CheckFiles(const LimitFacts& limits, const Needs& needs) {
  const uint64_t wanted =
      kFilesBeside + kFilesOfARank * static_cast<uint64_t>(needs.ranks_here) + 2 * static_cast<uint64_t>(needs.ranks);
  const std::string found = "open files: " + Count(limits.files_soft) + ", at most " + Count(limits.files_hard);
  if (limits.files_soft >= wanted) return Ok("files", found);
  const std::string todo = "ulimit -n " + std::to_string(wanted) + " before the run";
  if (limits.files_hard >= wanted) return Warning("files", found, todo);
  return Error("files", found,
               "raise the hard limit (limits.conf, LimitNOFILE= of a unit) to " + std::to_string(wanted) +
                   " or more; then " + todo);
}

Finding CheckLocked(const LimitFacts& limits, const DriverFacts& driver, const Needs& needs) {
  const std::string found = "locked memory: " + Size(limits.locked_bytes);
  const bool matters = driver.library || needs.devices > 0;
  if (!matters) return Ok("locked memory", found + "; nothing here locks any");
  if (limits.locked_bytes >= kGiB) return Ok("locked memory", found);
  return Warning("locked memory", found, "ulimit -l unlimited: NCCL registers its buffers with InfiniBand adapters");
}

Finding CheckCores(const LimitFacts& limits) {
  const bool piped = limits.core_pattern.starts_with('|');
  const std::string found =
      "core files: " + Size(limits.core_bytes) + (piped ? ", handed to " : ", written as ") +
      (piped ? limits.core_pattern.substr(1, limits.core_pattern.find(' ')) : limits.core_pattern);
  if (limits.core_bytes == 0) return Ok("core files", "core files: none are written");
  return Warning("core files", found,
                 "ulimit -c 0: a crashed rank is replaced only after its whole memory was written out, unless you want "
                 "to look at it");
}

Finding CheckClock(const std::optional<bool>& synchronized) {
  if (!synchronized) return Ok("clock", "the kernel does not say whether it is synchronized");
  if (*synchronized) return Ok("clock", "synchronized");
  return Warning("clock", "not synchronized",
                 "run chrony or systemd-timesyncd: lines of several hosts are put in order by their times, and "
                 "certificates have dates. No decision of Kintsugi depends on it");
}

Finding CheckRunBase(const HostFacts& facts) {
  if (facts.run_base_own) return Ok("run folder", facts.run_base);
  return Error("run folder", "'" + facts.run_base + "' is not a folder that only this user can write to",
               "remove it, or give --run-dir to kintsugi run");
}

Finding CheckPrivate(const char* check, const FileFacts& file, uint64_t least_bytes) {
  if (!file.trouble.empty()) return Error(check, "'" + file.file + "': " + file.trouble, "name a file that is there");
  if (!file.own && !file.of_root)
    return Error(check, "'" + file.file + "' is another user's", "make a copy of your own, mode 600");
  // What root owns may be given to a group, as volumes of Kubernetes are.
  if ((file.mode & (file.of_root ? 027 : 077)) != 0) {
    char mode[16];
    std::snprintf(mode, sizeof mode, "%03o", file.mode);
    return Error(check, "'" + file.file + "' can be read or changed by others (mode " + mode + ")",
                 "chmod 600 '" + file.file + "'");
  }
  if (file.bytes < least_bytes)
    return Error(check, "'" + file.file + "' has " + std::to_string(file.bytes) + " bytes",
                 "make one of " + std::to_string(least_bytes) +
                     " random bytes: (umask 077; head -c 32 /dev/urandom > FILE), and bring it to every node");
  return Ok(check, "'" + file.file + (file.own ? "' is this user's alone" : "' is root's, given to this user's group"));
}

Finding CheckSaves(const SaveFacts& save, const Needs& needs) {
  if (!save.writable.ok())
    return Error("save folder", save.writable.message(), "give --save-dir a folder that this user may write to");
  const std::string found = "'" + save.directory + "' can be written; " + Size(save.free_bytes) + " free";
  if (static_cast<double>(save.free_bytes) < needs.free_gib * static_cast<double>(kGiB))
    return Error("save folder", found,
                 "free some, or choose another: a checkpoint takes as much as the model and its "
                 "optimizer (--free-gib says how much is needed)");
  if (save.in_memory)
    return Warning("save folder", found + ", in memory (tmpfs)",
                   "choose one on a disk: what lies there is lost with this host");
  return Ok("save folder", found);
}

// Asked for: an error; else a host without devices is as good as any.
Finding Missing(const char* check, const std::string& found, const std::string& todo, const Needs& needs) {
  return needs.devices > 0 ? Error(check, found, todo) : Ok(check, found + "; none was asked for");
}

Finding CheckDriver(const DriverFacts& driver, const Needs& needs) {
  if (!driver.library)
    return Missing("driver", "no NVIDIA driver (libcuda.so.1)",
                   "install the driver, start the container with --gpus all, or name it (KINTSUGI_CUDA_LIBRARY)",
                   needs);
  return Ok("driver", "libcuda.so.1 is there" +
                          (driver.gpus && !driver.gpus->empty() ? ", version " + driver.gpus->front().driver : ""));
}

Finding CheckNccl(const DriverFacts& driver, const Needs& needs) {
  if (!driver.nccl)
    return Missing("NCCL", "no libnccl.so.2",
                   "install libnccl2, or name the one that torch brought (KINTSUGI_NCCL_LIBRARY)", needs);
  return Ok("NCCL", driver.nccl_version.empty() ? "libnccl.so.2 is there" : "version " + driver.nccl_version);
}

void CheckGpu(const GpuFacts& gpu, std::vector<Finding>* out) {
  const std::string check = "GPU " + std::to_string(gpu.index);
  const char* name = check.c_str();
  if (gpu.uncorrected.value_or(0) > 0)
    return out->push_back(Error(
        name,
        gpu.name + ": " + std::to_string(*gpu.uncorrected) + " uncorrected memory errors since the driver was loaded",
        "take it out (--devices, CUDA_VISIBLE_DEVICES), reset it (nvidia-smi -r) or replace it"));
  if (gpu.prohibited)
    return out->push_back(Error(name, gpu.name + ": its compute mode is Prohibited", "nvidia-smi -c DEFAULT"));
  if (gpu.sliced)
    return out->push_back(
        Warning(name, gpu.name + ": MIG is on",
                "nvidia-smi -mig 0, or take it out (CUDA_VISIBLE_DEVICES): a rank has a whole device, and NCCL "
                "makes no groups of slices"));
  if (gpu.pages_pending)
    return out->push_back(Warning(name, gpu.name + ": memory pages wait to be retired",
                                  "reset it (nvidia-smi -r) or start the host anew before the run"));
  if (gpu.celsius.value_or(0) >= kHotCelsius)
    return out->push_back(Warning(name, gpu.name + ": " + std::to_string(*gpu.celsius) + " degrees",
                                  "look at its cooling: it slows down, and all ranks with it"));
  if (gpu.used_mib.value_or(0) > kUsedMibOfNobody)
    return out->push_back(Warning(name, gpu.name + ": " + std::to_string(*gpu.used_mib) + " MiB are in use",
                                  "see who has it (nvidia-smi): a process that an earlier job left?"));
  if (!gpu.slowed_by.empty())
    return out->push_back(
        Warning(name, gpu.name + " is slowed down by " + gpu.slowed_by,
                "look at its cooling and power (nvidia-smi -q -d PERFORMANCE): all ranks wait for it"));
  if (!gpu.persistent)
    return out->push_back(
        Warning(name, gpu.name + ": persistence mode is off",
                "nvidia-smi -pm 1, or run nvidia-persistenced: where no process has the device open the driver "
                "lets it go, so a start takes seconds more"));
  out->push_back(Ok(
      name, gpu.name + " is well" +
                (gpu.total_mib ? "; " + std::to_string(*gpu.total_mib - gpu.used_mib.value_or(0)) + " MiB free" : "")));
}

Finding CheckPeers(const std::vector<PeerGap>& gaps) {
  if (gaps.empty()) return Ok("peer access", "each device can read the others' memory");
  const PeerGap& first = gaps.front();
  return Warning("peer access",
                 "GPU " + std::to_string(first.from) + " and " + std::to_string(first.to) +
                     " cannot read each other's memory (" + first.why + ")" +
                     (gaps.size() > 1 ? ", nor can " + std::to_string(gaps.size() - 1) + " more pairs" : ""),
                 "nvidia-smi topo -m shows what lies between them; NCCL goes by way of the host, which is slower");
}

// What is watched is numbered by NVML, in the order of the bus.
Finding CheckOrder(const DriverFacts& driver) {
  const std::string& order = driver.device_order;
  if (order.empty() || order == "PCI_BUS_ID") return Ok("device order", "by the bus, as the driver's tools count");
  return Error(
      "device order", "CUDA_DEVICE_ORDER=" + order,
      "unset it, or set it to PCI_BUS_ID: a device that fails is known by its place on the bus, and its rank would be "
      "taken for another's");
}

void CheckGpus(const DriverFacts& driver, const Needs& needs, std::vector<Finding>* out) {
  if (!driver.gpu_trouble.empty()) {
    out->push_back(Error("GPUs", "nvidia-smi: " + driver.gpu_trouble,
                         "mend the driver (dmesg | grep -i xid): no program will find a device here"));
    return;
  }
  if (!driver.gpus) {
    out->push_back(Missing("GPUs", "no nvidia-smi", "install it: the devices' health is not known", needs));
    return;
  }
  const int found = static_cast<int>(driver.gpus->size());
  if (found < needs.devices)
    out->push_back(Error("GPUs", std::to_string(found) + " of " + std::to_string(needs.devices) + " devices are here",
                         "one may have fallen off the bus (dmesg | grep -i xid), or the container was given fewer"));
  for (const GpuFacts& gpu : *driver.gpus) CheckGpu(gpu, out);
  if (found > 1) out->push_back(CheckPeers(driver.peer_gaps));
  out->push_back(CheckOrder(driver));
  if (!driver.mps.empty())
    out->push_back(Error(
        "MPS", driver.mps,
        "end it (echo quit | nvidia-cuda-mps-control) or unset the variable: an error of one process ends all that "
        "share a device, and kintsugi.torch refuses it"));
}

Finding CheckTls(const Status& fits, const std::optional<std::chrono::seconds>& left) {
  if (!fits.ok()) return Error("TLS", fits.message(), "see --tls-cert, --tls-key and --tls-ca");
  if (left && *left <= net::kCertificateEndsSoon)
    return Warning("TLS", "the certificate, or one that it hangs on, ends " + net::EndWords(*left),
                   "put new files in their places: a run takes them up by itself");
  return Ok("TLS", "certificate, key and CA fit together");
}

Finding CheckPython(const PythonFacts& python) {
  if (python.trouble.empty()) return Ok("Python", python.versions);
  return Error("Python", python.program + ": " + python.trouble,
               "pip install kintsugi into the environment that the run is started in, or name its interpreter");
}

}  // namespace

std::vector<Finding> CheckHost(const HostFacts& facts, const Needs& needs) {
  std::vector<Finding> findings{CheckKernel(facts.kernel),
                                CheckPorts(facts.ports, needs),
                                CheckFiles(facts.limits, needs),
                                CheckSharedMemory(facts.shared_memory, needs),
                                CheckLocked(facts.limits, facts.driver, needs),
                                CheckCores(facts.limits),
                                CheckClock(facts.clock_synchronized),
                                CheckRunBase(facts)};
  if (facts.save) findings.push_back(CheckSaves(*facts.save, needs));
  if (facts.secret) findings.push_back(CheckPrivate("secret", *facts.secret, kSecretBytes));
  if (facts.tls_key) findings.push_back(CheckPrivate("TLS key", *facts.tls_key, 1));
  if (facts.tls) findings.push_back(CheckTls(*facts.tls, facts.tls_left));
  findings.push_back(CheckDriver(facts.driver, needs));
  findings.push_back(CheckNccl(facts.driver, needs));
  CheckGpus(facts.driver, needs, &findings);
  if (facts.python) findings.push_back(CheckPython(*facts.python));
  return findings;
}

}  // namespace kintsugi::doctor
