// ControllerConnection: the connection to the controller: made, joined, made again when it is lost, and the messages
// on it.
//
// Threads: the agent's; Prepare comes before it is told to Connect, AwaitJoined and EndJoin are for any.
// Ownership: the client and its connection.
// Errors: AwaitJoined: as Agent::Join says. What ends the run later goes to ConnectionEnds.
// Invariants: a rank joins once; from then on the connection says which life of it speaks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/agent/agent_thread.h"
#include "runtime/agent/inbox.h"
#include "runtime/agent/membership.h"
#include "runtime/agent/rank_page.h"
#include "runtime/agent/store_client.h"
#include "runtime/base/log.h"
#include "runtime/net/client.h"

namespace kintsugi {

class ConnectionEnds {
 public:
  // There will be no controller, or it will not have this rank: the run is over here.
  virtual void OnRunLost(const std::string& why) = 0;

 protected:
  ~ConnectionEnds() = default;
};

class ControllerConnection {
 public:
  ControllerConnection(Membership& self, RankPage& page, Inbox& inbox, StoreClient& store, AgentThread& thread,
                       std::shared_ptr<LogSink> log)
      : self_(self), page_(page), inbox_(inbox), store_(store), thread_(thread), log_(std::move(log)) {}

  Status Prepare(const std::shared_ptr<const net::Secret>& secret, ConnectionEnds& ends);
  void Connect();
  Status AwaitJoined();
  // A caller that still waits to join hears this.
  void EndJoin(const Status& why);

  // Lost where there is no connection: the controller learns what it needs when the agent joins again.
  void Send(Generation generation, const core::AgentMessage& message);
  // What the trainer has reported, where no launcher reads it from the page.
  void ForwardReports();
  // Nobody else sees this process beat: the connection has to say so.
  bool speaks_alone() const { return reports_.has_value(); }
  void Stop();

 private:
  void OnOpen(const net::ConnectionPtr& connection);
  void OnFrame(std::string_view payload);
  void OnJoinReply(const core::Header& header, const core::JoinReply& reply);
  void OnDisconnect(const Status& why);
  void OnNoController(const Status& why);
  // Whether the join has been answered, and by no.
  bool IsRefused() const;

  Membership& self_;
  RankPage& page_;
  Inbox& inbox_;
  StoreClient& store_;
  AgentThread& thread_;
  const std::shared_ptr<LogSink> log_;
  ConnectionEnds* ends_ = nullptr;  // constant from Prepare on
  std::unique_ptr<net::Client> client_;
  net::ConnectionPtr connection_;
  std::optional<ReportReader> reports_;  // only where no launcher reads the page

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<Status> joined_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi
