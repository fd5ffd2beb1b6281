#include "tools/observe/observatory.h"

#include <pthread.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <csignal>
#include <utility>

#include "runtime/base/host_name.h"
#include "runtime/net/event_loop.h"
#include "tools/observe/live_page.h"
#include "tools/observe/run_metrics.h"
#include "tools/report/record_json.h"

namespace kintsugi::observe {
namespace {

// A status this young is good enough for the next reader: however many ask, the launcher is asked five times a second.
constexpr Duration kFresh = std::chrono::milliseconds(200);
// A launcher that has not shown itself by then is between two runs, or in trouble.
constexpr Duration kAnswerWithin = std::chrono::seconds(3);
constexpr Duration kLookEvery = std::chrono::seconds(1);  // for the page, and for notices
// Until an answer is with the kernel, which delivers it also when this process is gone.
constexpr Duration kOnItsWay = std::chrono::milliseconds(200);
// For notices at the end.
constexpr Duration kEndLimit = std::chrono::seconds(2);

constexpr const char* kPlain = "text/plain; charset=utf-8";
constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kMetricsIndex =
    "<!DOCTYPE html><html lang=\"en\"><title>Kintsugi</title><p>Metrics: <a href=\"/metrics\">/metrics</a>\n";

nlohmann::ordered_json SummaryOf(const ObservatoryOptions& options, const IncidentResult& incident,
                                 TimePoint run_began) {
  RunResult result;
  result.begin = run_began;
  result.end = SteadyClock::SteadyNow();
  result.incidents.push_back(incident);
  return SummaryJson(options.record_of(result)).at("incidents").at(0);
}

}  // namespace

Observatory::Observatory(ObservatoryOptions options, std::shared_ptr<LogSink> log)
    : options_(std::move(options)), log_(std::move(log)), limit_(io_), tick_(io_), end_(io_) {}

Result<std::shared_ptr<Observatory>> Observatory::Make(ObservatoryOptions options, std::shared_ptr<LogSink> log) {
  const std::shared_ptr<Observatory> made(new Observatory(std::move(options), std::move(log)));
  KINTSUGI_RETURN_IF_ERROR(made->Listen());
  made->Begin();
  return made;
}

Status Observatory::Listen() {
  const bool one = options_.metrics && options_.page && *options_.metrics == *options_.page;
  if (options_.page_token) actions_ = std::make_unique<Actions>(io_, *options_.page_token, log_);
  if (options_.metrics) KINTSUGI_RETURN_IF_ERROR(Open("--metrics", *options_.metrics, true, one));
  if (options_.page && !one) KINTSUGI_RETURN_IF_ERROR(Open("--page", *options_.page, false, true));
  if (!options_.on_incident.empty()) receivers_.push_back(MakeCommandReceiver(io_, options_.on_incident, log_));
  if (options_.webhook) receivers_.push_back(MakeWebhookReceiver(io_, *options_.webhook, log_));
  return Status::Ok();
}

Status Observatory::Open(const std::string& option, const ListenAddress& place, bool metrics, bool page) {
  doors_.push_back(std::make_unique<Door>(Door{metrics, page, nullptr}));
  Door& door = *doors_.back();
  Result<std::unique_ptr<HttpServer>> server = HttpServer::Listen(
      io_, place.address, place.port, [this, &door](HttpRequest request, HttpServer::Respond respond) {
        OnRequest(door, std::move(request), std::move(respond));
      });
  if (!server.ok()) return server.status().Annotate(option);
  door.server = std::move(*server);
  if (page) events_ = door.server->Stream("/events");
  const std::string url = "http://" + door.server->address();
  if (metrics) log_->Write(LogLevel::kInfo, LogLine("metrics", {{"url", url + "/metrics"}}));
  if (page) log_->Write(LogLevel::kInfo, LogLine("page", {{"url", url + "/"}}));
  // All addresses are no place to go to.
  const bool everywhere = place.address == "0.0.0.0" || place.address == "::";
  if (page) page_ = (everywhere ? "http://" + HostName() + url.substr(url.rfind(':')) : url) + "/";
  return Status::Ok();
}

// Signals are for the launcher's thread.
void Observatory::Begin() {
  if (events_ || !receivers_.empty()) Tick();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    const auto work = boost::asio::make_work_guard(io_);
    const Status ran = net::RunGuarded(io_, *log_);
    if (!ran.ok()) log_->Write(LogLevel::kError, LogLine("observatory_closed", {{"why", ran.message()}}));
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Observatory::~Observatory() {
  boost::asio::post(io_, [this] {
    end_.expires_after(kEndLimit);
    end_.async_wait([this](const boost::system::error_code&) { io_.stop(); });
    EndWhenIdle();
  });
  if (thread_.joinable()) thread_.join();
}

void Observatory::Take(NodeStatus status) {
  wants_.store(Wants::kNothing, std::memory_order_relaxed);
  boost::asio::post(io_, [this, taken = std::make_shared<const NodeStatus>(std::move(status))] { OnSight(taken); });
}

void Observatory::OnIncident(const std::string& job, const IncidentResult& incident, TimePoint run_began) {
  if (receivers_.empty()) return;
  boost::asio::post(io_, [this, job, incident, run_began] {
    const NodeStatus seen = status_ ? *status_ : NodeStatus{.job = job};
    Tell(IncidentNotice(SummaryOf(options_, incident, run_began), seen));
  });
}

void Observatory::OnEnded(const std::string& job, int exit_code, const std::string& reason, const SaveHistory& saves,
                          std::optional<Duration> again_after) {
  if (receivers_.empty()) return;
  boost::asio::post(io_, [this, job, exit_code, reason, saves, again_after] {
    if (!status_) status_ = std::make_shared<const NodeStatus>(NodeStatus{.job = job});
    for (const OperatorNotice& notice : watch_.End(saves)) Tell(notice);
    Tell(EndNotice(exit_code, reason, again_after));
  });
}

void Observatory::End(int exit_code) {
  boost::asio::post(io_, [this, exit_code] {
    exit_code_ = exit_code;
    NodeStatus left;
    if (status_)
      left = {.job = status_->job,
              .run_id = status_->run_id,
              .address = status_->address,
              .version = status_->version,
              .node = status_->node,
              .term = status_->term};
    status_ = std::make_shared<const NodeStatus>(std::move(left));
    for (const Asked& asked : std::exchange(waiting_, {})) AnswerMetrics(asked);
  });
}

// ---- on the own thread -------------------------------------------------------------------------------------------

// A poll that has just begun may set it back: one that still waits for more asks again with the next tick.
void Observatory::Want(Wants wants) {
  if (wants > wants_.load(std::memory_order_relaxed)) wants_.store(wants, std::memory_order_relaxed);
}

void Observatory::OnRequest(const Door& door, HttpRequest request, HttpServer::Respond respond) {
  const std::string& path = request.path;
  if (request.method == "GET" && door.metrics && path == "/metrics")
    return OnMetricsRequest({std::move(request), std::move(respond)});
  if (request.method == "GET" && path == "/")
    return respond({200, kHtml, door.page ? LivePage(actions_ != nullptr) : kMetricsIndex, {}});
  if (request.method == "GET" && door.page && path == "/page.js")
    return respond({200, "text/javascript; charset=utf-8", LivePageScript(), {}});
  if (door.page && path.starts_with(Actions::kPath)) {
    if (actions_) return actions_->OnRequest(request, std::move(respond));
    return respond({403, kPlain, "this page only shows: orders need `kintsugi run --page-token-file FILE`\n", {}});
  }
  respond({404,
           kPlain,
           std::string("there is ") + (door.page ? "GET /, /page.js and /events" : "GET /") +
               (door.metrics ? " and GET /metrics\n" : "\n"),
           {}});
}

void Observatory::OnMetricsRequest(Asked asked) {
  if (exit_code_ || (status_ && SteadyClock::SteadyNow() - status_at_ < kFresh)) return AnswerMetrics(asked);
  if (waiting_.empty()) {
    limit_.expires_after(kAnswerWithin);
    limit_.async_wait([this](const boost::system::error_code& error) {
      if (!error) GiveUpWaiting();
    });
  }
  waiting_.push_back(std::move(asked));
  Want(Wants::kFigures);
}

void Observatory::OnSight(std::shared_ptr<const NodeStatus> status) {
  status_ = std::move(status);
  status_at_ = SteadyClock::SteadyNow();
  if (status_->run) times_.Take(status_->run->time);
  limit_.cancel();
  for (const Asked& asked : std::exchange(waiting_, {})) AnswerMetrics(asked);
  if (events_ && events_->readers() > 0) Publish(*status_);
  if (receivers_.empty()) return;
  for (const OperatorNotice& notice : watch_.See(*status_, status_at_, std::chrono::system_clock::now())) Tell(notice);
}

void Observatory::Tell(const OperatorNotice& notice) {
  const NodeStatus own = status_ ? *status_ : NodeStatus();
  const std::string json = NoticeJson(notice, own, std::chrono::system_clock::now(), page_);
  for (const auto& receiver : receivers_) receiver->Tell(json);
}

void Observatory::AnswerMetrics(const Asked& asked) {
  const Dialect dialect = DialectFor(asked.request.accept);
  const Served served{times_.risen(), options_.linger, exit_code_};
  asked.respond({200, std::string(ContentTypeOf(dialect)), MetricsOf(*status_, served, dialect), {}});
  ++reads_;
  if (!exit_code_) return;
  limit_.expires_after(kOnItsWay);
  limit_.async_wait([this](const boost::system::error_code& error) {
    if (!error) end_read_ = true;
  });
}

void Observatory::GiveUpWaiting() {
  for (const Asked& asked : std::exchange(waiting_, {}))
    asked.respond({503, kPlain, "the launcher does not answer: its run begins or ends\n", {}});
}

void Observatory::Tick() {
  if (events_ && events_->readers() > 0)
    Want(Wants::kRecord);
  else if (!receivers_.empty())
    Want(Wants::kFigures);
  tick_.expires_after(kLookEvery);
  tick_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Tick();
  });
}

// What has not changed is not sent again. A status that was taken for metrics alone lacks the record.
void Observatory::Publish(const NodeStatus& status) {
  if (status.run && !status.so_far) return;
  std::optional<RunRecord> record;
  if (status.so_far) record = options_.record_of(*status.so_far);
  for (auto& [id, html] : LivePageParts(status, record ? &*record : nullptr)) {
    if (const auto before = parts_.find(id); before != parts_.end() && before->second == html) continue;
    events_->Publish(id, html);
    parts_[id] = html;
  }
}

void Observatory::EndWhenIdle() {
  const bool idle =
      std::all_of(receivers_.begin(), receivers_.end(), [](const auto& receiver) { return receiver->idle(); });
  if (idle) return io_.stop();
  for (const auto& receiver : receivers_) receiver->OnIdle([this] { EndWhenIdle(); });
}

}  // namespace kintsugi::observe
