// Whether a host is fit for a run: what was found out about it, judged. Pure: facts in, findings out.
//
// Units: in the names.
// Errors: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/port_range.h"
#include "runtime/base/status.h"
#include "tools/doctor/findings.h"
#include "tools/doctor/gpu_facts.h"

namespace kintsugi::doctor {

// What the run to come needs.
struct Needs {
  int ranks_here = 1;
  int ranks = 1;        // of the whole run
  PortRange ports;      // any: no range was asked for
  double free_gib = 1;  // in the save folder
  int devices = 0;      // 0: it needs none
  bool python = false;
};

struct KernelFacts {
  std::string release;
  bool pidfd = false, memfd = false;
};
struct PortFacts {
  bool any_free = false;            // a port of the system's choice on 127.0.0.1
  std::vector<uint16_t> taken;      // of the range
  std::optional<PortRange> system;  // what the system hands out to outgoing connections
};
struct SharedMemoryFacts {
  bool there = false, writable = false;
  uint64_t bytes = 0, free_bytes = 0;
};
struct LimitFacts {
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  uint64_t files_soft = 0, files_hard = 0;
  uint64_t locked_bytes = 0;
  uint64_t core_bytes = 0;
  std::string core_pattern;
};
struct FileFacts {
  std::string file;
  std::string trouble;  // why it cannot be read; empty: it can
  bool own = false;     // this user's
  bool of_root = false;
  unsigned mode = 0;  // permission bits
  uint64_t bytes = 0;
};
struct SaveFacts {
  std::string directory;
  Status writable;
  uint64_t free_bytes = 0;
  bool in_memory = false;  // a tmpfs
};
struct DriverFacts {
  bool library = false;  // libcuda
  bool nccl = false;
  std::string nccl_version;                   // empty: it does not say
  std::optional<std::vector<GpuFacts>> gpus;  // nullopt: nvidia-smi is not there
  std::string gpu_trouble;                    // it is there and does not answer; empty: it does
  std::vector<PeerGap> peer_gaps;
  std::string mps;           // what says that MPS is used; empty: nothing
  std::string device_order;  // CUDA_DEVICE_ORDER
};
struct PythonFacts {
  std::string program;
  std::string versions;  // "Python 3.11.2, kintsugi 0.9, torch 2.13"
  std::string trouble;   // empty: all was imported
};

struct HostFacts {
  KernelFacts kernel;
  PortFacts ports;
  SharedMemoryFacts shared_memory;
  LimitFacts limits;
  std::optional<bool> clock_synchronized;  // nullopt: the kernel does not say
  std::string run_base;
  bool run_base_own = false;  // this user's alone, or it can be made
  std::optional<FileFacts> secret, tls_key;
  std::optional<Status> tls;                     // whether certificate, key and CA fit together
  std::optional<std::chrono::seconds> tls_left;  // until the first of them ends
  std::optional<SaveFacts> save;
  DriverFacts driver;
  std::optional<PythonFacts> python;
};

std::vector<Finding> CheckHost(const HostFacts& facts, const Needs& needs);

}  // namespace kintsugi::doctor
