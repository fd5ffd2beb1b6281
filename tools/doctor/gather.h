// Finds out about this host what CheckHost judges. Nothing is left behind, no device is touched but by asking nvidia-smi.
//
// Threads: one; blocks, for a few seconds at most for each program that is asked.
// Errors: none: what cannot be found out is a fact, too.
#pragma once

#include <string>

#include "runtime/net/tls.h"
#include "tools/doctor/checks.h"

namespace kintsugi::doctor {

// What is to be looked at beside the host itself; empty: it is not.
struct GatherOptions {
  PortRange ports;
  std::string save_dir;
  std::string secret_file;
  net::TlsFiles tls;
  std::string python;  // interpreter
  // Whether checkpoints could be written there; the command's own check.
  Status (*check_save_dir)(const std::string&) = nullptr;
};

HostFacts Gather(const GatherOptions& options);

}  // namespace kintsugi::doctor
