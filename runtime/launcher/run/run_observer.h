// RunObserver: who watches a launcher from outside its event loop. The launcher hands it plain data when it asks for
// some, and never waits for it; what it makes of them (metrics, a page, notices) is no business of the launcher's. What
// somebody orders there goes the way of the control socket's requests.
//
// Threads: every call comes on the launcher's thread and must return at once; none comes after the launcher's Run.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/launcher/run/run_result.h"
#include "runtime/launcher/run/run_status.h"

namespace kintsugi {

// What a launcher can truly say: of its own host always, of the run where it leads.
struct NodeStatus {
  std::string job;
  std::string run_id;   // of this start of it; another start has another
  std::string address;  // of this host, as others reach it
  std::string version;  // of the program
  int node = 0;         // controllers without ranks come after the nodes
  bool leads = false;
  bool hears_leader = false;           // itself or another
  std::string leader, leader_address;  // where another one leads: "node 0", and where it is
  std::string leader_page;             // its page, as the leader has it; empty: none
  Term term;                           // the newest that it knows
  int processes = 0;                   // of ranks, that run on this host
  std::optional<std::chrono::system_clock::time_point> certificate_ends;
  std::optional<RunStatus> run;             // where it leads
  std::shared_ptr<const RunResult> so_far;  // the same, if the record is wanted: all but the timings of single steps
};

class RunObserver {
 public:
  enum class Wants { kNothing, kFigures, kRecord };
  // As at the control socket: one line of JSON each way. The answer comes on the launcher's thread, or never where the
  // launcher ends before.
  struct Order {
    std::string request;
    std::function<void(std::string answer)> respond;
  };
  virtual ~RunObserver() = default;
  // Where others see the run while this launcher leads it; empty: nowhere.
  virtual std::string page() const { return ""; }
  // Asked every few milliseconds.
  virtual Wants wants() = 0;
  virtual void Take(NodeStatus status) = 0;
  // Those that were given since it was last asked, every few milliseconds.
  virtual std::vector<Order> TakeOrders() = 0;
  // An incident is over, one that ended the run too. Told by the launcher that leads.
  virtual void OnIncident(const std::string& job, const IncidentResult& incident, TimePoint run_began) = 0;
};

}  // namespace kintsugi
