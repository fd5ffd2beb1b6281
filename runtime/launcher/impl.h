// Launcher::Impl: worker slots, page polling, signals, control socket around one Controller.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/controller/controller.h"
#include "runtime/launcher/launcher.h"
#include "runtime/net/control_socket.h"
#include "runtime/process/child_process.h"
#include "runtime/process/guardian.h"
#include "runtime/process/oom_monitor.h"
#include "runtime/process/output_prefixer.h"
#include "runtime/process/shared_page.h"

namespace kintsugi {

class Launcher::Impl final : public ControllerHost {
 public:
  Impl(LauncherOptions options, std::shared_ptr<LogSink> log);
  ~Impl() override;
  Result<RunResult> Run();

  std::function<void(const RunProgress&)> listener_;

 private:
  // One rank's place: at most one process at a time.
  struct Slot {
    Incarnation incarnation;
    std::unique_ptr<ChildProcess> child;
    std::optional<SharedPage> page;
    std::optional<ReportReader> reports;
    std::optional<Incarnation> next;  // to be started once the present process is reaped
    uint64_t step = 0;                // newest step begun, and when
    TimePoint step_began;
    size_t life = 0;                  // index into result_.lives
    std::string kill_reason;
  };

  Status SetUp();
  void Record();
  void WatchSignals();
  void OnSignal(int number);

  // ControllerHost.
  void Spawn(Rank rank, Incarnation incarnation) override;
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) override;
  void OnTransition(const core::Transition& transition) override;
  void OnIncident(const core::IncidentRecord& record) override;
  void OnNotice(Rank rank, const std::string& text) override;
  void OnEnded(const core::RunEnded& ended) override;

  // Workers (workers.cc).
  void StartProcess(Rank rank, Incarnation incarnation);
  Result<ProcessSpec> SpecFor(Rank rank, Incarnation incarnation, int page_fd) const;
  void OnExit(Rank rank, Incarnation incarnation, const ExitCause& cause);
  void OnLine(Rank rank, OutputStream stream, std::string_view line);
  void Poll();
  void FeedBeat(Rank rank, const Slot& slot);
  void ReadPage(Rank rank, Slot& slot);
  void MarkStep(Rank rank, Slot& slot, uint64_t step);
  void ReportProgress();
  void StopIfDone();
  void EndNow(const std::string& why);

  // Control socket (control.cc).
  void OnRequest(const std::string& request, net::ControlSocket::Respond respond);
  std::string StatusJson() const;
  std::string IncidentsJson() const;

  LauncherOptions options_;
  std::shared_ptr<LogSink> log_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer poll_;
  boost::asio::steady_timer leave_;
  std::shared_ptr<const net::Secret> secret_;
  int secret_fd_ = -1;
  uint16_t master_port_ = 0;
  OomMonitor oom_;
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<OutputPrefixer> output_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<net::ControlSocket> control_;
  std::vector<Slot> slots_;
  Ledger ledger_;
  RunResult result_;
  bool ended_ = false;
  int signals_seen_ = 0;
  TimePoint last_progress_;
  uint64_t progress_step_ = 0;
  TimePoint progress_step_at_;
  double samples_per_second_ = 0;
  size_t fired_attributed_ = 0;
};

}  // namespace kintsugi
