// A controller in a process of the caller's: what `kintsugi controller` is as a program, its events pulled, its
// operators' requests answered as a launcher's control socket answers them.
#include "runtime/controller/controller.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <nlohmann/json.hpp>
#include <thread>

#include "integrations/c/handle.h"
#include "runtime/base/mutex.h"
#include "runtime/controller/incident_line.h"
#include "runtime/inject/ledger.h"
#include "runtime/launcher/leader/operator_requests.h"
#include "runtime/launcher/run/status_line.h"
#include "runtime/net/event_loop.h"

using namespace kintsugi;

namespace {

using nlohmann::json;

// A caller that does not pull loses the oldest events, never the newest.
constexpr size_t kEventsKept = 4096;
constexpr Duration kPollPauses = std::chrono::milliseconds(20);
constexpr std::chrono::milliseconds kLookEvery{200};
constexpr int64_t kLongestMs = 1'000'000'000'000;  // 30 years: clocks count in nanoseconds

// As the launcher's log in JSON has them (tools/logs); an incident as `incidents` tells it.
std::string EventLine(const char* name, json fields) {
  fields["event"] = name;
  return AnswerLine(fields);
}

}  // namespace

// Threads: `thread` runs the loop and everything of the host's; the queue is guarded by `mutex`.
struct kintsugi_controller final : ControllerHost {
  // An event with its texts in one place.
  struct Event {
    int32_t kind = KINTSUGI_EVENT_NOTHING;
    int32_t rank = -1;
    uint64_t incarnation = 0;
    uint64_t step = 0;
    uint64_t generation = 0;
    int32_t exit_code = 0;
    std::string phase, text, line;
  };

  kintsugi_controller(const ControllerOptions& options, std::shared_ptr<const net::Secret> secret,
                      std::shared_ptr<LogSink> sink)
      : forks(c::Forks()),
        job(options.job),
        address(options.bind_address),
        log(std::move(sink)),
        controller(io, options, std::move(secret), static_cast<ControllerHost&>(*this), log),
        desk(controller, options.policy.save_directory),
        pauses(io),
        work(boost::asio::make_work_guard(io)) {}
  ~kintsugi_controller() override {
    work.reset();
    io.stop();
    if (thread.joinable()) thread.join();
  }

  void Run() {
    thread = std::thread([this] {
      controller.Start();
      const Status status = net::RunGuarded(io, *log);
      if (!status.ok()) End(core::kExitFailed, Step(), status.message());
      over = true;
    });
  }

  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) override {
    Push({.kind = KINTSUGI_EVENT_GIVEN_UP,
          .rank = rank.value(),
          .incarnation = incarnation.value(),
          .text = reason,
          .line = EventLine("given_up",
                            {{"rank", rank.value()}, {"incarnation", incarnation.value()}, {"reason", reason}})});
  }
  void OnTransition(const core::Transition& t) override {
    Push({.kind = KINTSUGI_EVENT_PHASE,
          .generation = t.generation.value(),
          .phase = std::string(core::PhaseName(t.to)),
          .text = t.reason,
          .line = EventLine("phase", {{"from", core::PhaseName(t.from)},
                                      {"to", core::PhaseName(t.to)},
                                      {"gen", t.generation.value()},
                                      {"incident", t.incident},
                                      {"attempt", t.attempt},
                                      {"reason", t.reason}})});
  }
  void OnIncident(const core::IncidentRecord& record) override {
    incidents.push_back(record);
    desk.OnIncident(record);
    Push({.kind = KINTSUGI_EVENT_INCIDENT,
          .rank = record.ranks.empty() ? -1 : record.ranks.front().value(),
          .step = record.step.value_or(Step()).value(),
          .generation = record.generation.value(),
          .phase = record.rung ? std::string(core::RungName(*record.rung)) : "",
          .text = record.cause,
          .line = EventLine("incident", IncidentJson(record, true, SteadyClock::SteadyNow()))});
  }
  void OnCheckpoint(const core::Checkpoint& checkpoint) override { saves.OnMade(checkpoint, SteadyClock::SteadyNow()); }
  void OnSave(const core::SaveSettled& settled) override {
    const std::string line =
        settled.saved ? saves.OnRemark(settled) : saves.OnFailed(settled, SteadyClock::SteadyNow());
    if (!line.empty()) log->Write(LogLevel::kWarning, line);
    desk.OnSave(settled);
  }
  void OnInexact(Rank rank, const std::string& text) override { OnNotice(rank, "inexact: " + text); }
  void OnNotice(Rank rank, const std::string& text) override {
    Push({.kind = KINTSUGI_EVENT_NOTICE,
          .rank = rank.value(),
          .text = text,
          .line = EventLine("notice", {{"rank", rank.value()}, {"text", text}})});
  }
  void OnEnded(const core::RunEnded& run) override { End(run.exit_code, run.committed, run.text); }

  void End(int exit_code, Step committed, const std::string& text) {
    ended = true;
    desk.AnswerAll("the run ended before that: " + text);
    Push({.kind = KINTSUGI_EVENT_ENDED,
          .step = committed.value(),
          .exit_code = exit_code,
          .text = text,
          .line = EventLine("run_ended", {{"exit", exit_code}, {"step", committed.value()}, {"reason", text}})});
  }

  void Push(Event event) {
    {
      const MutexLock lock(mutex);
      if (events.size() == kEventsKept) events.pop_front();
      events.push_back(std::move(event));
    }
    changed.NotifyAll();
  }

  // An operator's request.
  void OnRequest(const ControlWords& words, const OperatorRequests::Respond& respond) {
    const std::string& command = words.command;
    if (command == "status") return respond(Look());
    if (command == "incidents") return respond(IncidentsLine(incidents, controller.core().incident()));
    if (command == "inject") return respond(Inject(words.spec));
    if (command == "stop") return SaveAndEnd(), respond(AnswerLine({{"ok", true}}));
    if (!desk.OnRequest(words, {.ended = ended, .leaves = leaves}, respond)) return respond(UnknownCommand(command));
    PollPauses();
  }

  std::string Look() {
    RunStatus status = StatusOf(controller, job, address);
    status.saves = saves;
    status.times_known = false;
    return StatusLine(status);
  }

  std::string Inject(const std::string& spec) {
    const Result<Injection> injection = ParseInjection(spec);
    if (!injection.ok()) return RefusalLine(injection.status().message());
    const auto& members = controller.core().members();
    const std::string rank = injection->rank.ToString();
    if (injection->rank.value() >= static_cast<int>(members.size())) return RefusalLine("there is no rank " + rank);
    if (members[static_cast<size_t>(injection->rank.value())].life != core::ControllerCore::Life::kReady)
      return RefusalLine("rank " + rank + " has no process yet");
    const Result<InjectionId> id = injections.Add(*injection);
    if (!id.ok()) return RefusalLine(id.status().message());
    controller.Feed(core::OperatorInject{injection->rank, id->ToString() + " " + ToString(*injection)});
    return AnswerLine({{"ok", true}, {"id", id->value()}, {"spec", ToString(*injection)}});
  }

  void SaveAndEnd() {
    leaves = true;
    controller.Feed(core::OperatorStop{});
  }

  void PollPauses() {
    desk.Poll();
    if (!desk.awaits_pause()) return;
    pauses.expires_after(kPollPauses);
    pauses.async_wait([this](const boost::system::error_code& error) {
      if (!error) PollPauses();
    });
  }

  const uint32_t forks;
  const std::string job, address;
  std::shared_ptr<LogSink> log;
  Mutex mutex;
  CondVar changed;
  std::deque<Event> events KINTSUGI_GUARDED_BY(mutex);
  Event shown KINTSUGI_GUARDED_BY(mutex);  // what the newest answer of kintsugi_controller_next points into
  boost::asio::io_context io;
  Controller controller;
  // The loop's.
  OperatorRequests desk;
  boost::asio::steady_timer pauses;
  std::vector<core::IncidentRecord> incidents;  // those that are over
  SaveHistory saves;
  Ledger injections;
  bool ended = false, leaves = false;
  std::atomic<bool> over{false};  // nothing that is posted is carried out any more
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  std::thread thread;
};

namespace {

Status AtEdge(const kintsugi_controller* controller, const std::function<Status()>& function) {
  if (!controller) return {StatusCode::kInvalidArgument, "the controller is NULL"};
  if (controller->forks != c::Forks()) return c::ForkedStatus();
  try {
    return function();
  } catch (const std::exception& e) {
    return {StatusCode::kInternal, e.what()};
  }
}

Result<ControllerOptions> Convert(const kintsugi_controller_options& given) {
  if (!given.job || !given.secret || given.secret_size == 0)
    return Status(StatusCode::kInvalidArgument, "kintsugi_controller_options: job and secret are needed");
  if (given.port < 0 || given.port > 65535)
    return Status(StatusCode::kInvalidArgument,
                  "kintsugi_controller_options.port is " + std::to_string(given.port) + ": 0 (any) to 65535");
  ControllerOptions options;
  core::Policy& policy = options.policy;
  policy.world_size = given.world_size;
  policy.can_spawn = false;
  policy.max_respawns = given.max_respawns;
  if (given.silence_ms > 0) policy.silence = std::chrono::milliseconds(given.silence_ms);
  if (given.step_timeout_ms > 0) policy.step_timeout = std::chrono::milliseconds(given.step_timeout_ms);
  if (given.join_timeout_ms > 0) policy.join_timeout = std::chrono::milliseconds(given.join_timeout_ms);
  policy.hang_factor = given.hang_factor;
  if (given.save_directory) policy.save_directory = given.save_directory;
  if (given.reload_directory)
    policy.resume_directory = given.reload_directory;  // with step 0: nothing is loaded at the start
  options.job = given.job;
  if (given.bind_address) options.bind_address = given.bind_address;
  options.port = static_cast<uint16_t>(given.port);
  KINTSUGI_ASSIGN_OR_RETURN(
      options.tls, net::TlsContext::LoadIfAny({given.tls_certificate ? given.tls_certificate : "",
                                               given.tls_key ? given.tls_key : "", given.tls_ca ? given.tls_ca : ""}));
  if (options.tls) options.tls->Follow();
  KINTSUGI_RETURN_IF_ERROR(policy.Validate());
  return options;
}

Status Start(const kintsugi_controller_options* given, kintsugi_controller** controller) {
  if (!controller) return {StatusCode::kInvalidArgument, "there is no place for the controller"};
  *controller = nullptr;
  kintsugi_controller_options options;
  KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(given, "kintsugi_controller_options", &options));
  KINTSUGI_ASSIGN_OR_RETURN(const ControllerOptions converted, Convert(options));
  KINTSUGI_ASSIGN_OR_RETURN(const UniqueFd file, c::SecretFile(options.secret, options.secret_size));
  KINTSUGI_ASSIGN_OR_RETURN(auto secret, net::Secret::FromFd(file.get()));
  std::shared_ptr<LogSink> log = options.log ? c::FunctionLog(options.log, options.log_context) : NullLogSink();
  auto made = std::make_unique<kintsugi_controller>(converted, std::move(secret), std::move(log));
  KINTSUGI_RETURN_IF_ERROR(made->controller.Listen());
  made->Run();
  *controller = made.release();
  return Status::Ok();
}

Status Next(kintsugi_controller* controller, int64_t timeout_ms, kintsugi_event* event) {
  kintsugi_event given;
  KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(event, "kintsugi_event", &given));
  MutexLock lock(controller->mutex);
  const auto due = [&]() KINTSUGI_REQUIRES(controller->mutex) { return !controller->events.empty(); };
  if (timeout_ms < 0)
    controller->changed.Wait(lock, due);
  else
    controller->changed.WaitFor(lock, std::chrono::milliseconds(timeout_ms), due);
  kintsugi_controller::Event& shown = controller->shown;
  shown = {};
  if (due()) {
    shown = std::move(controller->events.front());
    controller->events.pop_front();
  }
  kintsugi_event told{};
  told.size = given.size;
  told.kind = shown.kind;
  told.rank = shown.rank;
  told.incarnation = shown.incarnation;
  told.step = shown.step;
  told.generation = shown.generation;
  told.exit_code = shown.exit_code;
  told.phase = shown.phase.c_str();
  told.text = shown.text.c_str();
  told.json = shown.line.c_str();
  std::memcpy(static_cast<void*>(event), &told, std::min(given.size, sizeof told));
  return Status::Ok();
}

// Runs `function` on the loop's thread.
template <typename Function>
Status Post(kintsugi_controller* controller, Function function) {
  boost::asio::post(controller->io, std::move(function));
  return Status::Ok();
}

Status Ask(kintsugi_controller* controller, const char* request, int64_t timeout_ms, const char** answer) {
  if (!request || !answer)
    return {StatusCode::kInvalidArgument, "kintsugi_controller_ask: the request or the place for its answer is NULL"};
  KINTSUGI_ASSIGN_OR_RETURN(ControlWords words, ReadControlWords(request));
  struct Waiting {
    Mutex mutex;
    CondVar changed;
    std::optional<std::string> answer KINTSUGI_GUARDED_BY(mutex);
  };
  const auto waiting = std::make_shared<Waiting>();
  boost::asio::post(controller->io, [controller, waiting, words = std::move(words)] {
    controller->OnRequest(words, [waiting](std::string line) {
      {
        const MutexLock lock(waiting->mutex);
        if (!waiting->answer) waiting->answer = std::move(line);
      }
      waiting->changed.NotifyAll();
    });
  });
  MutexLock lock(waiting->mutex);
  const auto there = [&]() KINTSUGI_REQUIRES(waiting->mutex) { return waiting->answer.has_value(); };
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, kLongestMs));
  // In slices: where its loop has ended by an error of ours, nobody will answer.
  while (!there() && !controller->over && (timeout_ms < 0 || std::chrono::steady_clock::now() < until)) {
    const auto slice = std::chrono::steady_clock::now() + kLookEvery;
    waiting->changed.WaitUntil(lock, timeout_ms < 0 ? slice : std::min(slice, until), there);
  }
  if (!there() && controller->over) return {StatusCode::kInternal, "the controller's loop has ended: see its log"};
  if (!there())
    return {StatusCode::kDeadlineExceeded,
            "no answer to " + std::string(request) + " within " + std::to_string(timeout_ms) +
                " ms: what was asked for may still come about; with \"wait\": false it is not waited for"};
  thread_local std::string shown;
  shown = std::move(*waiting->answer);
  *answer = shown.c_str();
  return Status::Ok();
}

}  // namespace

kintsugi_code kintsugi_controller_start(const kintsugi_controller_options* options, kintsugi_controller** controller,
                                        kintsugi_error** error) try {
  return c::Answer(Start(options, controller), error);
} catch (const std::exception& e) {
  return c::Answer({StatusCode::kInternal, e.what()}, error);
}

void kintsugi_controller_stop(kintsugi_controller* controller) {
  // In a forked child its thread does not exist: what it held is left as it is.
  if (!controller || controller->forks != c::Forks()) return;
  delete controller;
}

int32_t kintsugi_controller_port(const kintsugi_controller* controller) {
  return controller ? controller->controller.port() : 0;
}

kintsugi_code kintsugi_controller_next(kintsugi_controller* controller, int64_t timeout_ms, kintsugi_event* event,
                                       kintsugi_error** error) {
  return c::Answer(AtEdge(controller, [&] { return Next(controller, timeout_ms, event); }), error);
}

kintsugi_code kintsugi_controller_report_exit(kintsugi_controller* controller, int32_t rank, uint64_t incarnation,
                                              const char* cause, kintsugi_error** error) {
  return c::Answer(AtEdge(controller,
                          [&] {
                            core::ProcessExited exited;
                            exited.rank = Rank(rank);
                            exited.incarnation = Incarnation(incarnation);
                            exited.cause = cause ? cause : "ended";
                            exited.since = SteadyClock::SteadyNow();
                            return Post(controller, [controller, exited = std::move(exited)] {
                              controller->controller.Feed(exited);
                            });
                          }),
                   error);
}

kintsugi_code kintsugi_controller_save_and_end(kintsugi_controller* controller, kintsugi_error** error) {
  return c::Answer(AtEdge(controller, [&] { return Post(controller, [controller] { controller->SaveAndEnd(); }); }),
                   error);
}

kintsugi_code kintsugi_controller_ask(kintsugi_controller* controller, const char* request, int64_t timeout_ms,
                                      const char** answer, kintsugi_error** error) {
  return c::Answer(AtEdge(controller, [&] { return Ask(controller, request, timeout_ms, answer); }), error);
}
