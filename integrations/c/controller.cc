// A controller in a process of the caller's: what `kintsugi controller` is as a program, its events pulled.
#include "runtime/controller/controller.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <future>
#include <thread>

#include "integrations/c/handle.h"
#include "runtime/net/event_loop.h"

using namespace kintsugi;

namespace {

// Whoever does not pull loses the oldest events, never the newest.
constexpr size_t kEventsKept = 4096;

// An event with its texts in one place.
struct Event {
  int32_t kind = KINTSUGI_EVENT_NOTHING;
  int32_t rank = -1;
  uint64_t incarnation = 0;
  uint64_t step = 0;
  uint64_t generation = 0;
  int32_t exit_code = 0;
  std::string phase, text;
};

}  // namespace

// Threads: `thread` runs the loop and everything of the host's; the queue is guarded by `mutex`.
struct kintsugi_controller final : ControllerHost {
  kintsugi_controller(ControllerOptions options, std::shared_ptr<const net::Secret> secret,
                      std::shared_ptr<LogSink> sink)
      : forks(c::Forks()),
        log(std::move(sink)),
        controller(io, std::move(options), std::move(secret), static_cast<ControllerHost&>(*this), log),
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
      if (!status.ok()) Push({.kind = KINTSUGI_EVENT_ENDED, .exit_code = core::kExitFailed, .text = status.message()});
    });
  }

  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) override {
    Push({.kind = KINTSUGI_EVENT_GIVEN_UP, .rank = rank.value(), .incarnation = incarnation.value(), .text = reason});
  }
  void OnTransition(const core::Transition& t) override {
    Push({.kind = KINTSUGI_EVENT_PHASE,
          .generation = t.generation.value(),
          .phase = std::string(core::PhaseName(t.to)),
          .text = t.reason});
  }
  void OnIncident(const core::IncidentRecord& record) override {
    Push({.kind = KINTSUGI_EVENT_INCIDENT,
          .rank = record.ranks.empty() ? -1 : record.ranks.front().value(),
          .step = record.step.value_or(Step()).value(),
          .generation = record.generation.value(),
          .phase = record.rung ? std::string(core::RungName(*record.rung)) : "",
          .text = record.cause});
  }
  void OnNotice(Rank rank, const std::string& text) override {
    Push({.kind = KINTSUGI_EVENT_NOTICE, .rank = rank.value(), .text = text});
  }
  void OnEnded(const core::RunEnded& ended) override {
    Push({.kind = KINTSUGI_EVENT_ENDED,
          .step = ended.committed.value(),
          .exit_code = ended.exit_code,
          .text = ended.text});
  }

  void Push(Event event) {
    {
      std::lock_guard lock(mutex);
      if (events.size() == kEventsKept) events.pop_front();
      events.push_back(std::move(event));
    }
    changed.notify_all();
  }

  const uint32_t forks;
  std::shared_ptr<LogSink> log;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> events;
  Event shown;  // what the newest answer of kintsugi_controller_next points into
  boost::asio::io_context io;
  Controller controller;
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
  KINTSUGI_RETURN_IF_ERROR(policy.Validate());
  return options;
}

Status Start(const kintsugi_controller_options* given, kintsugi_controller** controller) {
  if (!controller) return {StatusCode::kInvalidArgument, "there is no place for the controller"};
  *controller = nullptr;
  kintsugi_controller_options options;
  KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(given, "kintsugi_controller_options", &options));
  KINTSUGI_ASSIGN_OR_RETURN(ControllerOptions converted, Convert(options));
  KINTSUGI_ASSIGN_OR_RETURN(const UniqueFd file, c::SecretFile(options.secret, options.secret_size));
  KINTSUGI_ASSIGN_OR_RETURN(auto secret, net::Secret::FromFd(file.get()));
  std::shared_ptr<LogSink> log = options.log ? c::FunctionLog(options.log, options.log_context) : NullLogSink();
  auto made = std::make_unique<kintsugi_controller>(std::move(converted), std::move(secret), std::move(log));
  KINTSUGI_RETURN_IF_ERROR(made->controller.Listen());
  made->Run();
  *controller = made.release();
  return Status::Ok();
}

Status Next(kintsugi_controller* controller, int64_t timeout_ms, kintsugi_event* event) {
  kintsugi_event given;
  KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(event, "kintsugi_event", &given));
  std::unique_lock lock(controller->mutex);
  const auto due = [&] { return !controller->events.empty(); };
  if (timeout_ms < 0)
    controller->changed.wait(lock, due);
  else
    controller->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), due);
  Event& shown = controller->shown;
  shown = Event();
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
  std::memcpy(static_cast<void*>(event), &told, std::min(given.size, sizeof told));
  return Status::Ok();
}

void Feed(kintsugi_controller* controller, core::ControllerEvent event) {
  boost::asio::post(controller->io, [controller, event = std::move(event)] { controller->controller.Feed(event); });
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

int32_t kintsugi_controller_port(const kintsugi_controller* controller) { return controller->controller.port(); }

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
                            Feed(controller, std::move(exited));
                            return Status::Ok();
                          }),
                   error);
}

kintsugi_code kintsugi_controller_save_and_end(kintsugi_controller* controller, kintsugi_error** error) {
  return c::Answer(AtEdge(controller,
                          [&] {
                            Feed(controller, core::OperatorStop{});
                            return Status::Ok();
                          }),
                   error);
}
