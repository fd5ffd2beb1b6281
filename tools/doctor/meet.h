// The nodes of a run to come meet and try each other: node 0 presides, and every node, that one too, attends.
//
// Threads: blocks its own; doors and callers have threads of their own, which are gone when it returns.
// Errors: kUnavailable, kDeadlineExceeded: this node could not take part, and why; kInvalidArgument: node 0 sent it
// away.
// Left behind: nothing; files that are written into the save folder are removed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/port_range.h"
#include "tools/doctor/conversation.h"
#include "tools/doctor/findings.h"

namespace kintsugi::doctor {

struct MeetOptions {
  int node = 0, nodes = 1;
  std::string rendezvous_host;
  uint16_t rendezvous_port = 0;
  std::string address;   // of this host, as others reach it
  PortRange ports;       // where it listens
  std::string save_dir;  // empty: none is looked at
  std::string version;
  std::string ca;  // what --tls-ca holds; empty: no certificates
  SharedSecret secret;
  Duration patience{};  // until all have come
  // What it waits for, once after five seconds and then every thirty.
  std::function<void(const std::string&)> tell;
};

struct MeetResult {
  std::vector<Finding> findings;
  std::string table;  // of roads; empty: all are open
};

// The same on every node that stayed to the end.
Result<MeetResult> Meet(const MeetOptions& options);

}  // namespace kintsugi::doctor
