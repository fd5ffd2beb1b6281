// Observatory: shows a launcher over HTTP to all who ask, and tells of its incidents. It takes what the launcher's
// event loop hands it as plain data and does all else on a thread of its own, so that nobody who looks on is in a run's
// way.
//
// A reader's question makes the launcher's next poll take a status; one that is fresh answers all who ask meanwhile.
// While somebody reads the page, one is taken every second.
// Threads: one of its own; what RunObserver has may be called from another one. Its end waits for notices that
// are on their way, for two seconds at most.
// Errors: Make: a place that cannot be listened at, by the option that names it.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/launcher/run/run_observer.h"
#include "tools/observe/actions.h"
#include "tools/observe/http_server.h"
#include "tools/observe/listen_address.h"
#include "tools/observe/notices.h"
#include "tools/observe/page_token.h"
#include "tools/observe/rising_times.h"
#include "tools/observe/run_watch.h"
#include "tools/report/record.h"

namespace kintsugi::observe {

struct ObservatoryOptions {
  std::optional<ListenAddress> metrics, page;  // one server where they are the same
  std::optional<PageToken> page_token;         // who has it may give orders; none: the page only shows
  std::string on_incident;                     // a command; empty: none
  std::optional<Webhook> webhook;
  Duration linger{};  // how long the end is served at most, until somebody has read it
  // What a report would be made of. REQUIRES: set where there is a page or a receiver of notices; called on the own
  // thread.
  std::function<RunRecord(const RunResult&)> record_of;

  bool any() const { return metrics || page || webhook || !on_incident.empty(); }
};

class Observatory final : public RunObserver {
 public:
  static Result<std::shared_ptr<Observatory>> Make(ObservatoryOptions options, std::shared_ptr<LogSink> log);
  ~Observatory() override;

  std::string page() const override { return page_; }
  Wants wants() override { return wants_.load(std::memory_order_relaxed); }
  void Take(NodeStatus status) override;
  std::vector<Order> TakeOrders() override { return actions_ ? actions_->TakeOrders() : std::vector<Order>(); }
  void OnIncident(const std::string& job, const IncidentResult& incident, TimePoint run_began) override;

  // A start is over, told by whoever led it or could not begin it. `saves`: as they were at its end.
  void OnEnded(const std::string& job, int exit_code, const std::string& reason, const SaveHistory& saves,
               std::optional<Duration> again_after);
  // ... and there is to be no other: metrics say so from now on.
  void End(int exit_code);
  // Of whoever reads metrics now and then: there is one, and it has not read the end yet.
  bool has_reader_to_come() const { return reads_.load() > 0 && !end_read_.load(); }

 private:
  // A server, and what it shows.
  struct Door {
    bool metrics = false, page = false;
    std::unique_ptr<HttpServer> server;
  };
  struct Asked {
    HttpRequest request;
    HttpServer::Respond respond;
  };

  Observatory(ObservatoryOptions options, std::shared_ptr<LogSink> log);
  Status Listen();
  Status Open(const std::string& option, const ListenAddress& place, bool metrics, bool page);
  void Begin();
  void Want(Wants wants);
  void OnRequest(const Door& door, HttpRequest request, HttpServer::Respond respond);
  void OnMetricsRequest(Asked asked);
  void OnSight(std::shared_ptr<const NodeStatus> status);
  void AnswerMetrics(const Asked& asked);
  void GiveUpWaiting();
  void Tick();
  void Publish(const NodeStatus& status);
  void EndWhenIdle();
  void Tell(const OperatorNotice& notice);

  const ObservatoryOptions options_;
  const std::shared_ptr<LogSink> log_;
  std::atomic<Wants> wants_{Wants::kNothing};
  std::atomic<uint64_t> reads_{0};
  std::atomic<bool> end_read_{false};
  // What follows is the own thread's, once it has begun.
  boost::asio::io_context io_;
  boost::asio::steady_timer limit_, tick_, end_;
  std::unique_ptr<Actions> actions_;  // null: the page only shows
  std::vector<std::unique_ptr<Door>> doors_;
  std::shared_ptr<EventStream> events_;       // null: no page
  std::map<std::string, std::string> parts_;  // of the page, as they were last published
  std::vector<std::unique_ptr<NoticeReceiver>> receivers_;
  std::string page_;  // where others find it; empty: there is none
  RunWatch watch_;
  std::shared_ptr<const NodeStatus> status_;
  TimePoint status_at_;
  RisingTimes times_;
  std::optional<int> exit_code_;  // the run is over, and the status is what is left of it
  std::vector<Asked> waiting_;
  std::thread thread_;
};

}  // namespace kintsugi::observe
