#include "runtime/agent/controller_connection.h"

#include <unistd.h>

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/host_name.h"
#include "runtime/wire/codec.h"

namespace kintsugi {

Status ControllerConnection::Prepare(const std::shared_ptr<const net::Secret>& secret, ConnectionEnds& ends) {
  KINTSUGI_CHECK(!client_, "the link is prepared once");
  ends_ = &ends;
  const AgentOptions& options = self_.options;
  if (options.page_fd < 0) reports_.emplace(page_.words().reports);
  net::ClientOptions client_options;
  client_options.self = {options.job, std::string(net::kAgentRole)};
  KINTSUGI_ASSIGN_OR_RETURN(
      client_options.tls,
      net::TlsContext::LoadIfAny({options.tls_certificate, options.tls_key, options.tls_ca}, net::OwnExpired::kTaken));
  if (client_options.tls) client_options.tls->Follow();
  net::ClientHandlers handlers;
  handlers.on_open = [this](const net::ConnectionPtr& connection) { OnOpen(connection); };
  handlers.on_frame = [this](const net::ConnectionPtr&, std::string_view payload) { OnFrame(payload); };
  handlers.on_close = [this](const net::ConnectionPtr&, const Status& why) { OnDisconnect(why); };
  handlers.on_failed = [this](const Status& why) { OnNoController(why); };
  KINTSUGI_ASSIGN_OR_RETURN(client_, net::Client::Create(thread_.io(), client_options, secret, std::move(handlers)));
  return Status::Ok();
}

void ControllerConnection::Connect() {
  KINTSUGI_CHECK(client_, "a link connects that was not prepared");
  const AgentOptions& options = self_.options;
  const Duration limit = thread_.has_core() ? options.controller_loss_timeout : options.join_timeout;
  const Status begun =
      client_->Connect(options.controller_host, options.controller_port, SteadyClock::SteadyNow() + limit);
  if (!begun.ok()) OnNoController(begun);
}

Status ControllerConnection::AwaitJoined() {
  const AgentOptions& options = self_.options;
  MutexLock lock(mutex_);
  if (!changed_.WaitFor(lock, options.join_timeout + std::chrono::seconds(1),
                        [&]() KINTSUGI_REQUIRES(mutex_) { return joined_.has_value(); }))
    return {StatusCode::kDeadlineExceeded, "the controller at " + options.controller_host + ":" +
                                               std::to_string(options.controller_port) + " did not answer the join"};
  return joined_->Annotate("rank " + options.rank.ToString() + " could not join");
}

void ControllerConnection::EndJoin(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (joined_) return;
    joined_ = why;
  }
  changed_.NotifyAll();
}

bool ControllerConnection::IsRefused() const {
  const MutexLock lock(mutex_);
  return joined_ && !joined_->ok();
}

void ControllerConnection::OnDisconnect(const Status& why) {
  connection_.reset();
  if (inbox_.ending() || IsRefused()) return;  // refused: the caller of Join has given up
  log_->Write(LogLevel::kWarning,
              LogLine("controller_lost", {{"rank", self_.options.rank.ToString()}, {"why", why.message()}}));
  Connect();
}

void ControllerConnection::OnNoController(const Status& why) {
  if (inbox_.ending()) return;
  {
    const MutexLock lock(mutex_);
    if (!joined_) {
      joined_ = why;
      changed_.NotifyAll();
      return;
    }
  }
  ends_->OnRunLost("no controller: " + why.message());
}

void ControllerConnection::OnOpen(const net::ConnectionPtr& connection) {
  connection_ = connection;
  const AgentOptions& options = self_.options;
  const bool again = thread_.has_core();
  const core::Header header{again ? thread_.core().term() : Term(), again ? thread_.core().generation() : Generation(),
                            options.rank, options.incarnation};
  const core::JoinRequest join{static_cast<uint64_t>(getpid()),
                               HostName(),
                               options.page_fd >= 0,
                               again ? thread_.core().standing() : core::Standing::kNew,
                               again,
                               again ? thread_.core().crew() : std::vector<Rank>(),
                               again ? thread_.core().crew_since() : Generation()};
  const Status sent = connection->Send(wire::Encode(options.job, header, core::AgentMessage(join)));
  if (!sent.ok()) connection->Abort();
}

void ControllerConnection::OnFrame(std::string_view payload) {
  Result<wire::ControllerFrame> frame = wire::DecodeFromController(self_.options.job, payload);
  if (!frame.ok()) {
    log_->Write(LogLevel::kWarning, LogLine("frame_refused", {{"why", frame.status().message()}}));
    return;
  }
  if (const auto* reply = std::get_if<core::JoinReply>(&frame->message)) return OnJoinReply(frame->header, *reply);
  if (thread_.has_core()) thread_.Step(core::FromController{frame->header, std::move(frame->message)});
}

void ControllerConnection::OnJoinReply(const core::Header& header, const core::JoinReply& reply) {
  if (thread_.has_core()) {
    // A controller that was replaced and does not know it: the one that replaced it will be found.
    if (header.term < thread_.core().term()) return connection_->Abort();
    if (reply.accepted) {
      thread_.Step(core::Connected{header.term});
      return store_.SayAgain(thread_.core().generation());
    }
    log_->Write(LogLevel::kWarning, LogLine("refused", {{"rank", self_.options.rank.ToString()}, {"why", reply.text}}));
    return ends_->OnRunLost("the controller refuses this rank: " + reply.text);
  }
  const MutexLock lock(mutex_);
  if (reply.accepted) {
    self_.options.incarnation = header.incarnation;
    self_.join = reply;
    self_.generation = header.generation;
    thread_.BeginCore(
        {self_.options.rank, header.incarnation, header.term, header.generation, reply.replacement, reply.crew});
    joined_ = Status::Ok();
  } else {
    joined_ = Status(StatusCode::kFailedPrecondition, reply.text);
  }
  changed_.NotifyAll();
}

void ControllerConnection::ForwardReports() {
  const net::ConnectionPtr connection = connection_;
  if (!reports_ || !connection || !thread_.has_core()) return;
  const core::Header header{thread_.core().term(), thread_.core().generation(), self_.options.rank,
                            self_.options.incarnation};
  reports_->Read([&](const StepReport& report) {
    const wire::RankReport message{report.step, report.loss, {report.samples.begin(), report.samples.end()}};
    (void)connection->Send(wire::Encode(self_.options.job, header, message));
  });
}

void ControllerConnection::Send(Generation generation, const core::AgentMessage& message) {
  if (!connection_) return;
  KINTSUGI_CHECK(thread_.has_core(), "a rank that has not joined has nothing to say");
  ForwardReports();  // first: the controller that hears of a step has its reports
  const core::Header header{thread_.core().term(), generation, self_.options.rank, self_.options.incarnation};
  const Status sent = connection_->Send(wire::Encode(self_.options.job, header, message, SteadyClock::SteadyNow()));
  if (!sent.ok()) log_->Write(LogLevel::kWarning, LogLine("send_failed", {{"why", sent.message()}}));
}

void ControllerConnection::Stop() {
  if (client_) client_->Stop();
}

}  // namespace kintsugi
