// What the launcher of a run is told.
//
// Ownership: values, and a share of what says so.
// Units: in the names or std::chrono.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/port_range.h"
#include "runtime/core/policy.h"
#include "runtime/inject/ledger.h"
#include "runtime/journal/options.h"
#include "runtime/net/http.h"
#include "runtime/net/secret.h"
#include "runtime/net/secret_file.h"
#include "runtime/net/tls.h"
#include "runtime/process/output_prefixer.h"
#include "runtime/process/rank_files.h"

namespace kintsugi {

class LateSignals;  // late_signals.h
class RunObserver;  // run_observer.h

inline constexpr int kVisibleDevices = -1;

struct LauncherOptions {
  std::string job;
  std::string program;
  std::vector<std::string> args;
  std::map<std::string, std::string> environment;  // beside RANK, WORLD_SIZE, ... and what agents need
  core::Policy policy;
  std::vector<Injection> injections;
  bool injections_must_strike = false;  // else a run that ends well ends with kExitStartup
  std::string bind_address = "127.0.0.1";
  uint16_t port = 0;                       // of the controller; 0: any of `ports`
  PortRange ports;                         // of all that others must reach; ranks are told by their environment
  std::string run_directory;               // holds the control socket; empty: none
  int nodes = 1;                           // hosts, each with a launcher; the policy's world is spread over them evenly
  std::string node_address = "127.0.0.1";  // of this host, as ranks of other hosts reach it
  std::shared_ptr<const net::Secret> secret;      // all nodes' own; null: one is made
  std::shared_ptr<net::SecretFile> secret_file;   // where that is from, so that changes are told; null: nowhere
  std::shared_ptr<const net::TlsContext> tls;     // of all control connections; null: without. Ranks: environment
  Duration node_wait = std::chrono::seconds(60);  // a lost node may come back within
  // A node that is away for so long loses its ranks to a spare node, where one is here (runtime/core/placement.h).
  Duration spare_after = std::chrono::seconds(5);
  // ... and else, where the trainer offers a world that the others can make up, the run goes on in that one.
  Duration shrink_after = std::chrono::seconds(20);
  std::vector<int> signals;                // that warn of the end beside kWarningSignals. Ranks: environment
  bool adopt = true;                       // hold the state memory of processes that are gone
  int controllers = 0;                     // processes without ranks that may lead several nodes
  std::vector<net::HttpEndpoint> witness;  // etcd, which decides even splits of several nodes; empty: none
  std::vector<std::string> warm_args;      // of the process that has loaded the program and forks ranks; empty: none
  bool preloads = false;                   // its arguments say what it loads, and the first processes are forked, too
  int spares = 0;                          // processes on each host that wait for a rank whose process is gone
  // Of each host, watched through NVML and the kernel's log; 0: none is; kVisibleDevices: those that NVML finds and CUDA_VISIBLE_DEVICES leaves.
  int devices = 0;
  journal::RecorderOptions journal;  // where it cannot be made, the run goes on unrecorded
  bool show_output = true;           // pass the workers' lines on, prefixed with the rank
  bool output_to_stderr = false;     // where standard output carries JSON
  // Where all that this process prints goes, so that no line breaks into another; null: the workers' lines alone have
  // one.
  std::shared_ptr<OutputPrefixer> output;
  std::shared_ptr<RankFiles> rank_files;      // of what the workers print, beside that; null: none
  std::shared_ptr<RunObserver> observer;      // null: nobody watches
  std::shared_ptr<LateSignals> late_signals;  // null: who is asked to end when the run is over ends as any process
  // What the nodes of a run compare when they meet: the program's version, and options as "--name=value": those that all must
  // have alike, and those that each may have as it wants.
  std::string version;
  std::vector<std::string> alike, own;
};

}  // namespace kintsugi
