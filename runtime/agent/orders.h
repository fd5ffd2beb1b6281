// Orders: carries out what the core decides, on the agent's thread: each action at the part whose it is, and the end of
// the run at all of them.
//
// Threads: the agent's.
// Ownership: of nothing.
// Errors: whatever is thrown on the agent's thread, and a controller that is lost, end the run here.
// Invariants: the run ends once; threads that wait are told before the stop handler is called for the last time.
#pragma once

#include <memory>
#include <string>

#include "runtime/agent/agent_thread.h"
#include "runtime/agent/armed_faults.h"
#include "runtime/agent/controller_connection.h"
#include "runtime/agent/gate.h"
#include "runtime/agent/inbox.h"
#include "runtime/agent/lookout.h"
#include "runtime/agent/snapshot_points.h"
#include "runtime/agent/stop_watch.h"
#include "runtime/agent/store_client.h"

namespace kintsugi {

class Orders final : public Actor, public ConnectionEnds {
 public:
  Orders(const Membership& self, const RankPage& page, Gate& gate, Inbox& inbox, ArmedFaults& armed, StoreClient& store,
         AgentThread& thread, ControllerConnection& connection, StopWatch& stop, SnapshotPoints& snapshots,
         Lookout& lookout, std::shared_ptr<LogSink> log)
      : self_(self),
        page_(page),
        gate_(gate),
        inbox_(inbox),
        armed_(armed),
        store_(store),
        thread_(thread),
        connection_(connection),
        stop_(stop),
        snapshots_(snapshots),
        lookout_(lookout),
        log_(std::move(log)) {}

  void Act(const core::AgentAction& action) override;
  void OnThrown(const std::string& what) override;
  void OnRunLost(const std::string& why) override { End({1, why}); }
  void End(const Inbox::RunEnd& end);

 private:
  void LockGate();
  void Interrupt(const core::StopOrder& order);
  void CancelTask();
  void StorePause(Step step);

  const Membership& self_;
  const RankPage& page_;
  Gate& gate_;
  Inbox& inbox_;
  ArmedFaults& armed_;
  StoreClient& store_;
  AgentThread& thread_;
  ControllerConnection& connection_;
  StopWatch& stop_;
  SnapshotPoints& snapshots_;
  Lookout& lookout_;
  const std::shared_ptr<LogSink> log_;
};

}  // namespace kintsugi
