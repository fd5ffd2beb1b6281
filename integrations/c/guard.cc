// The guard that is pulled, the step markers, and how the trainer is stopped without a word of its language.
#include <sys/eventfd.h>
#include <unistd.h>

#include "callbacks/state/registry.h"
#include "integrations/c/handle.h"

using namespace kintsugi;

namespace {

static_assert(KINTSUGI_TASK_ENDED == static_cast<int>(TaskKind::kEnded) &&
              KINTSUGI_TASK_ROLLBACK == static_cast<int>(TaskKind::kRollback) &&
              KINTSUGI_TASK_CONTINUE == static_cast<int>(TaskKind::kContinue) &&
              KINTSUGI_RUNG_GROW == static_cast<int>(Rung::kGrow) &&
              KINTSUGI_BETWEEN == static_cast<int>(TrainPhase::kBetween) &&
              KINTSUGI_COMPILE == static_cast<int>(Activity::kCompile) &&
              KINTSUGI_SECTION == static_cast<int>(Activity::kSection));

Status Stop(HandlerContext& call, void* context) {
  const auto& agent = *static_cast<kintsugi_agent*>(context);
  for (const kintsugi_agent::StopFunction& stop : agent.stops) stop.function(stop.context, call.generation.value());
  if (agent.stop_fd.get() >= 0) {
    const uint64_t one = 1;
    if (write(agent.stop_fd.get(), &one, sizeof one) < 0)
      return {StatusCode::kInternal, "the stop event could not be written"};  // its counter is full: it is readable
  }
  return Status::Ok();
}

// Tasks that no registered handler serves are done by doing nothing.
Status Nothing(HandlerContext&, void*) { return Status::Ok(); }

Status CallGate(Step step, void* context) {
  const auto& agent = *static_cast<kintsugi_agent*>(context);
  const kintsugi_code code = agent.gate(agent.gate_context, step.value());
  return {static_cast<StatusCode>(code), code == KINTSUGI_OK ? "" : "the trainer's gate"};
}

Status Begin(kintsugi_agent* agent) {
  Agent& inner = *agent->agent;
  for (const auto& [key, object] : agent->objects)
    if (!object->put && (inner.join_kind() == JoinKind::kFresh ||
                         (inner.join_kind() == JoinKind::kResumed && object->take_over == KINTSUGI_TAKE_OVER_DERIVED)))
      return {StatusCode::kFailedPrecondition,
              "mirrored object '" + key + "' has no bytes: kintsugi_put_object of step 0"};
  KINTSUGI_RETURN_IF_ERROR(inner.RegisterHandler(HandlerKind::kStop, Stop, agent));
  KINTSUGI_RETURN_IF_ERROR(inner.RegisterHandler(HandlerKind::kClean, Nothing, nullptr));
  KINTSUGI_RETURN_IF_ERROR(inner.RegisterHandler(HandlerKind::kRebuildGroup, Nothing, nullptr));
  return inner.BeginGuard();
}

std::vector<int32_t> Numbers(const std::vector<Rank>& ranks) {
  std::vector<int32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(rank.value());
  return numbers;
}

// Moves and entries as C reads them; what they point to stays with the agent until the next task.
void ShowOrders(kintsugi_agent* agent, const HandlerContext& call, kintsugi_task* told) {
  agent->ranks_of.clear();
  agent->moves.clear();
  agent->entries.clear();
  for (const RepairMove& move : call.moves) agent->ranks_of.push_back(Numbers(move.sources));
  std::vector<const SaveEntry*> shards;
  for (const SaveEntry& entry : call.entries)
    if (entry.layout != kObjectsAlone) shards.push_back(&entry);
  for (const SaveEntry* entry : shards) agent->ranks_of.push_back(Numbers(entry->holders));
  auto ranks = agent->ranks_of.begin();
  for (const RepairMove& move : call.moves) {
    agent->moves.push_back({move.layout, move.destination.value(), ranks->data(), ranks->size()});
    ++ranks;
  }
  for (const SaveEntry* entry : shards) {
    agent->entries.push_back({entry->layout, ranks->data(), ranks->size()});
    ++ranks;
  }
  told->moves = agent->moves.data();
  told->move_count = agent->moves.size();
  told->entries = agent->entries.data();
  told->entry_count = agent->entries.size();
}

Status Next(kintsugi_agent* agent, int64_t timeout_ms, kintsugi_task* task) {
  kintsugi_task given;
  KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(task, "kintsugi_task", &given));
  const TimePoint now = SteadyClock::SteadyNow();
  agent->in_task = false;
  KINTSUGI_ASSIGN_OR_RETURN(
      agent->task,
      agent->agent->NextTask(timeout_ms < 0 ? TimePoint::Max() : now + std::chrono::milliseconds(timeout_ms)));
  kintsugi_task told{};
  told.size = given.size;
  told.kind = static_cast<int32_t>(agent->task.kind);
  told.step = agent->task.step.value();
  told.left_ms = -1;
  told.directory = "";
  told.text = agent->task.text.c_str();
  agent->partners.clear();
  agent->fault_ranks.clear();
  agent->replaced_ranks.clear();
  agent->crew.clear();
  if (const HandlerContext* call = agent->task.call) {
    told.rung = static_cast<int32_t>(call->rung);
    told.generation = call->generation.value();
    told.left_ms = static_cast<int64_t>(ToMilliseconds(call->deadline - SteadyClock::SteadyNow()));
    agent->partners = Numbers(call->partners);
    agent->fault_ranks = Numbers(call->fault_ranks);
    agent->replaced_ranks = Numbers(call->replaced_ranks);
    agent->crew = Numbers(call->crew);
    told.directory = call->directory.c_str();
    told.relayout = call->relayout;
    told.registered_in = call->registered_in.value();
    ShowOrders(agent, *call, &told);
    agent->in_task = true;
  }
  told.partners = agent->partners.data();
  told.partner_count = agent->partners.size();
  told.fault_ranks = agent->fault_ranks.data();
  told.fault_rank_count = agent->fault_ranks.size();
  told.replaced_ranks = agent->replaced_ranks.data();
  told.replaced_rank_count = agent->replaced_ranks.size();
  told.crew = agent->crew.data();
  told.crew_count = agent->crew.size();
  std::memcpy(static_cast<void*>(task), &told, std::min(given.size, sizeof told));
  return Status::Ok();
}

// Class and place, where the text ends with " (FILE:LINE)"; else nothing that could be compared.
std::string SignatureOf(const std::string& class_name, const std::string& text) {
  const size_t open = text.rfind(" (");
  const size_t colon = text.rfind(':');
  const bool has_place = open != std::string::npos && colon != std::string::npos && colon > open + 2 &&
                         text.back() == ')' && colon + 2 < text.size() &&
                         text.find_first_not_of("0123456789", colon + 1) == text.size() - 1;
  return has_place ? class_name + text.substr(open) : "";
}

Status LeftLoop(kintsugi_agent* agent, kintsugi_outcome outcome, const char* class_name, const char* text) {
  std::string words = class_name ? class_name : "";
  if (text && *text) words += (words.empty() ? "" : ": ") + std::string(text);
  Agent& inner = *agent->agent;
  switch (outcome) {
    case KINTSUGI_FINISHED:
      return inner.LeaveLoop(Status::Ok(), false);
    case KINTSUGI_WAS_INTERRUPTED:
      return inner.LeaveLoop({StatusCode::kInterrupted, words}, false);
    case KINTSUGI_FINISHED_CHANGED:
      return inner.LeaveLoop(Status::Ok(), LoopEnd::kChanged);
    case KINTSUGI_REFUSED:
      return inner.LeaveLoop({StatusCode::kFailedPrecondition, words}, LoopEnd::kRefused);
    case KINTSUGI_RAISED:
      return inner.LeaveLoop({StatusCode::kInternal, words}, LoopEnd::kThrew,
                             SignatureOf(class_name ? class_name : "", text ? text : ""));
    case KINTSUGI_COMM_ERROR:
      return inner.LeaveLoop({StatusCode::kCommFailure, words}, true);
    case KINTSUGI_MEMORY_ERROR:
      static_cast<void>(inner.ReportMemoryError({}, words));
      return inner.LeaveLoop({StatusCode::kInterrupted, words}, false);
  }
  return {StatusCode::kInvalidArgument, "kintsugi_left_loop: outcome " + std::to_string(outcome) + " is none"};
}

kintsugi_code Tell(kintsugi_agent* agent, const Status& status) {
  agent->why = status.message();
  return c::CodeOf(status);
}

// Markers: the text of what one returns is kept for kintsugi_why.
template <typename Function>
kintsugi_code Marked(kintsugi_agent* agent, const Function& function) {
  if (!agent) [[unlikely]]
    return KINTSUGI_INVALID_ARGUMENT;
  if (c::IsForked(agent)) [[unlikely]]
    return Tell(agent, c::ForkedStatus());
  const Status status = function();
  if (status.ok()) [[likely]]
    return KINTSUGI_OK;
  return Tell(agent, status);
}

Status NoSuch(const char* call, const char* what, int number) {
  return {StatusCode::kInvalidArgument, std::string(call) + ": " + std::to_string(number) + " is no " + what};
}

Status CheckKeys(const char* call, const char* const* keys, size_t count) {
  KINTSUGI_RETURN_IF_ERROR(c::CheckArray(call, "keys", keys, count));
  for (size_t i = 0; i < count; ++i)
    if (!keys[i]) return c::IsNull(call, ("key " + std::to_string(i)).c_str());
  return Status::Ok();
}

Status NoFence(const char* call) {
  return {StatusCode::kInvalidArgument, std::string(call) + ": the fence is NULL; kintsugi_add_fence gives one"};
}

Status CheckObjects(const kintsugi_agent* agent, uint64_t step, const char* call = "kintsugi_begin_update") {
  for (const auto& [key, object] : agent->objects)
    if (object->step != step || !object->put)
      return {StatusCode::kFailedPrecondition, "mirrored object '" + key + "' is that of step " +
                                                   std::to_string(object->step) + ": kintsugi_put_object of step " +
                                                   std::to_string(step) + " comes before " + call};
  return Status::Ok();
}

}  // namespace

kintsugi_code kintsugi_on_stop(kintsugi_agent* agent, void (*function)(void* context, uint64_t generation),
                               void* context, kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  if (!function) return {StatusCode::kInvalidArgument, "kintsugi_on_stop: the function is NULL"};
                  if (AgentInternals::registry(*agent->agent).sealed())
                    return {StatusCode::kFailedPrecondition, "kintsugi_on_stop after kintsugi_guard_begin"};
                  agent->stops.push_back({function, context});
                  return Status::Ok();
                }),
      error);
}

kintsugi_code kintsugi_stop_fd(kintsugi_agent* agent, int* fd, kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  if (!fd) return c::IsNull("kintsugi_stop_fd", "fd");
                  if (AgentInternals::registry(*agent->agent).sealed() && agent->stop_fd.get() < 0)
                    return {StatusCode::kFailedPrecondition, "kintsugi_stop_fd after kintsugi_guard_begin"};
                  if (agent->stop_fd.get() < 0) agent->stop_fd = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
                  if (agent->stop_fd.get() < 0)
                    return {StatusCode::kResourceExhausted, "no descriptor for the stop event"};
                  *fd = agent->stop_fd.get();
                  return Status::Ok();
                }),
      error);
}

kintsugi_code kintsugi_set_gate(kintsugi_agent* agent, kintsugi_gate_mode mode,
                                kintsugi_code (*function)(void* context, uint64_t step), void* context,
                                kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(
          agent,
          [&]() -> Status {
            if (mode < KINTSUGI_GATE_CONTROL_PLANE || mode > KINTSUGI_GATE_OFF)
              return {StatusCode::kInvalidArgument, "kintsugi_set_gate: mode " + std::to_string(mode) + " is none"};
            KINTSUGI_RETURN_IF_ERROR(
                agent->agent->SetGate(static_cast<GateMode>(mode), function ? CallGate : nullptr, agent));
            agent->gate = function;
            agent->gate_context = context;
            return Status::Ok();
          }),
      error);
}

kintsugi_code kintsugi_register_fault(kintsugi_agent* agent, const char* pattern, kintsugi_outcome outcome,
                                      kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(
          agent,
          [&]() -> Status {
            if (outcome < KINTSUGI_RAISED || outcome > KINTSUGI_MEMORY_ERROR)
              return {StatusCode::kInvalidArgument, "kintsugi_register_fault: outcome " + std::to_string(outcome)};
            return agent->agent->RegisterFault(pattern ? pattern : "",
                                               outcome == KINTSUGI_RAISED       ? FaultClass::kException
                                               : outcome == KINTSUGI_COMM_ERROR ? FaultClass::kCommError
                                                                                : FaultClass::kMemoryError);
          }),
      error);
}

kintsugi_code kintsugi_guard_begin(kintsugi_agent* agent, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent, [&] { return Begin(agent); }), error);
}

kintsugi_code kintsugi_next(kintsugi_agent* agent, int64_t timeout_ms, kintsugi_task* task, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent, [&] { return Next(agent, timeout_ms, task); }), error);
}

kintsugi_code kintsugi_done(kintsugi_agent* agent, kintsugi_code outcome, const char* text, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&] {
                               const bool in_task = agent->in_task.exchange(false);
                               if (in_task && outcome == KINTSUGI_OK && text && *text) agent->task.call->remark = text;
                               return agent->agent->FinishTask(
                                   outcome == KINTSUGI_OK ? Status::Ok()
                                                          : Status(static_cast<StatusCode>(outcome), text ? text : ""));
                             }),
                   error);
}

kintsugi_code kintsugi_note_unreached(kintsugi_agent* agent, int32_t rank, uint16_t port, kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  if (!agent->in_task || agent->task.kind != TaskKind::kRebuildGroup)
                    return {StatusCode::kFailedPrecondition, "kintsugi_note_unreached: no REBUILD_GROUP is being done"};
                  agent->task.call->unreached.push_back({Rank(rank), port});
                  return Status::Ok();
                }),
      error);
}

kintsugi_code kintsugi_default(kintsugi_agent* agent, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&] {
                               agent->in_task = false;
                               return agent->agent->CarryOutTask();
                             }),
                   error);
}

int32_t kintsugi_superseded(const kintsugi_agent* agent) {
  if (!agent || c::IsForked(agent) || !agent->in_task.load(std::memory_order_acquire)) return 0;
  return agent->task.call->cancel->cancelled() ? 1 : 0;
}

kintsugi_code kintsugi_left_loop(kintsugi_agent* agent, kintsugi_outcome outcome, const char* class_name,
                                 const char* text, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent, [&] { return LeftLoop(agent, outcome, class_name, text); }), error);
}

kintsugi_code kintsugi_begin_step(kintsugi_agent* agent, uint64_t step) {
  const kintsugi_code code = Marked(agent, [&] { return agent->agent->BeginStep(Step(step)); });
  return code == KINTSUGI_INTERRUPTED && agent->agent->at_save_point() ? KINTSUGI_PAUSED : code;
}

kintsugi_code kintsugi_mark(kintsugi_agent* agent, uint64_t step, kintsugi_phase phase) {
  const kintsugi_code code = Marked(agent, [&]() -> Status {
    if (phase < KINTSUGI_FORWARD || phase > KINTSUGI_BETWEEN) return NoSuch("kintsugi_mark", "kintsugi_phase", phase);
    return agent->agent->EnterPhase(Step(step), static_cast<TrainPhase>(phase));
  });
  return code != KINTSUGI_OK && agent && AgentInternals::TakeInjectedThrow(*agent->agent) ? KINTSUGI_THROW : code;
}

kintsugi_code kintsugi_begin_collective(kintsugi_agent* agent) {
  const kintsugi_code code = Marked(agent, [&] { return agent->agent->BeginCollective(); });
  if (code != KINTSUGI_OK && agent && AgentInternals::TakeInjectedFlip(*agent->agent)) return KINTSUGI_FLIP;
  return code != KINTSUGI_OK && agent && AgentInternals::TakeInjectedThrow(*agent->agent) ? KINTSUGI_THROW : code;
}

kintsugi_code kintsugi_begin_collective_with(kintsugi_agent* agent, void* given, size_t size_bytes) {
  const kintsugi_code code = Marked(agent, [&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_begin_collective_with", "given", given, size_bytes));
    return agent->agent->BeginCollective(std::span(static_cast<uint8_t*>(given), size_bytes));
  });
  return code != KINTSUGI_OK && agent && AgentInternals::TakeInjectedThrow(*agent->agent) ? KINTSUGI_THROW : code;
}

kintsugi_code kintsugi_note_computed(kintsugi_agent* agent, const char* of, uint64_t number) {
  return Marked(agent, [&] {
    agent->agent->NoteComputed(of ? of : "", number);
    return Status::Ok();
  });
}

kintsugi_code kintsugi_reject(kintsugi_agent* agent, uint64_t step, const char* reason) {
  return Marked(agent, [&] { return agent->agent->Reject(Step(step), reason ? reason : ""); });
}

kintsugi_code kintsugi_reject_with(kintsugi_agent* agent, uint64_t step, const char* reason,
                                   const kintsugi_reject_options* options) {
  return Marked(agent, [&]() -> Status {
    kintsugi_reject_options how{};
    if (options) KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(options, "kintsugi_reject_options", &how));
    return agent->agent->Reject(Step(step), reason ? reason : "", {how.back, how.of_all != 0});
  });
}

int32_t kintsugi_asks_norm(const kintsugi_agent* agent, uint64_t step) {
  return agent && !c::IsForked(agent) && agent->agent->AsksNorm(Step(step)) ? 1 : 0;
}

kintsugi_code kintsugi_report_norm(kintsugi_agent* agent, uint64_t step, double norm) {
  return Marked(agent, [&] { return agent->agent->ReportNorm(Step(step), norm); });
}

const char* kintsugi_left_out(const kintsugi_agent* agent, uint64_t step) {
  if (!agent || c::IsForked(agent)) return nullptr;
  const std::string* const why = agent->agent->LeftOut(Step(step));
  return why ? why->c_str() : nullptr;
}

uint64_t kintsugi_next_left_out(const kintsugi_agent* agent, uint64_t after) {
  return agent && !c::IsForked(agent) ? agent->agent->NextLeftOut(Step(after)).value_or(Step()).value() : 0;
}

kintsugi_code kintsugi_report(kintsugi_agent* agent, uint64_t step, double loss, const uint64_t* samples,
                              size_t sample_count) {
  return Marked(agent, [&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_report", "samples", samples, sample_count));
    return agent->agent->Report(Step(step), loss, {samples, sample_count});
  });
}

kintsugi_code kintsugi_begin_update(kintsugi_agent* agent, uint64_t step) {
  return Marked(agent, [&]() -> Status {
    if (!agent->objects.empty()) KINTSUGI_RETURN_IF_ERROR(CheckObjects(agent, step));
    return agent->agent->BeginUpdate(Step(step));
  });
}

kintsugi_code kintsugi_end_update(kintsugi_agent* agent, uint64_t step) {
  return Marked(agent, [&] { return agent->agent->EndUpdate(Step(step)); });
}

kintsugi_code kintsugi_refresh_objects(kintsugi_agent* agent, uint64_t step, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               KINTSUGI_RETURN_IF_ERROR(CheckObjects(agent, step, "kintsugi_refresh_objects"));
                               return agent->agent->RefreshObjects(Step(step));
                             }),
                   error);
}

Result<bool> kintsugi_fence::IsDone() const {
  if (event) return event->IsDone();
  int32_t done = 0;
  const kintsugi_code code = is_done(context, &done);
  if (code != KINTSUGI_OK) return Status(StatusCode::kInternal, "the trainer's fence says that its device failed");
  return done != 0;
}

kintsugi_code kintsugi_add_fence(kintsugi_agent* agent, kintsugi_code (*is_done)(void* context, int32_t* done),
                                 void* context, kintsugi_fence** fence, kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  if (!is_done || !fence)
                    return {StatusCode::kInvalidArgument, "kintsugi_add_fence: is_done, or the place for it, is NULL"};
                  if (AgentInternals::registry(*agent->agent).sealed())
                    return {StatusCode::kFailedPrecondition, "kintsugi_add_fence after kintsugi_guard_begin"};
                  agent->fences.push_back(std::make_unique<kintsugi_fence>(is_done, context));
                  *fence = agent->fences.back().get();
                  return Status::Ok();
                }),
      error);
}

kintsugi_code kintsugi_record_fence(kintsugi_agent* agent, kintsugi_fence* fence, void* stream) {
  return Marked(agent, [&]() -> Status {
    if (!fence) return NoFence("kintsugi_record_fence");
    if (!fence->event)
      return {StatusCode::kInvalidArgument,
              "kintsugi_record_fence: the fence is a function's: kintsugi_add_device_fence makes one to be recorded"};
    return fence->event->Record(stream);
  });
}

kintsugi_code kintsugi_begin_update_after(kintsugi_agent* agent, uint64_t step, const kintsugi_fence* inputs) {
  return Marked(agent, [&]() -> Status {
    if (!inputs) return NoFence("kintsugi_begin_update_after");
    if (!agent->objects.empty()) KINTSUGI_RETURN_IF_ERROR(CheckObjects(agent, step));
    return agent->agent->BeginUpdate(Step(step), *inputs);
  });
}

kintsugi_code kintsugi_end_update_after(kintsugi_agent* agent, uint64_t step, const kintsugi_fence* update) {
  return Marked(agent, [&]() -> Status {
    if (!update) return NoFence("kintsugi_end_update_after");
    return agent->agent->EndUpdate(Step(step), *update);
  });
}

kintsugi_code kintsugi_poll(const kintsugi_agent* agent) {
  if (!agent) return KINTSUGI_INVALID_ARGUMENT;
  return c::IsForked(agent) ? KINTSUGI_FAILED_PRECONDITION : c::CodeOf(agent->agent->Poll());
}

kintsugi_code kintsugi_begin_activity(kintsugi_agent* agent, kintsugi_activity activity) {
  return kintsugi_begin_activity_within(agent, activity, 0);
}

kintsugi_code kintsugi_begin_activity_within(kintsugi_agent* agent, kintsugi_activity activity, int64_t limit_ms) {
  return Marked(agent, [&]() -> Status {
    if (activity < KINTSUGI_WARMUP || activity > KINTSUGI_SECTION)
      return NoSuch("kintsugi_begin_activity", "kintsugi_activity", activity);
    if (limit_ms < 0)
      return {StatusCode::kInvalidArgument,
              "kintsugi_begin_activity_within: a limit of " + std::to_string(limit_ms) + " ms"};
    const Duration limit = limit_ms == 0 ? Duration::max() : Duration(std::chrono::milliseconds(limit_ms));
    return agent->agent->BeginActivity(static_cast<Activity>(activity), limit);
  });
}

kintsugi_code kintsugi_note_inexact(kintsugi_agent* agent, const char* text) {
  return Marked(agent, [&] { return agent->agent->NoteInexact(text ? text : ""); });
}

kintsugi_code kintsugi_end_activity(kintsugi_agent* agent) {
  return Marked(agent, [&] { return agent->agent->EndActivity(); });
}

kintsugi_code kintsugi_report_memory_error(kintsugi_agent* agent, const char* const* keys, size_t key_count,
                                           const char* text) {
  return Marked(agent, [&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(CheckKeys("kintsugi_report_memory_error", keys, key_count));
    return agent->agent->ReportMemoryError(std::vector<std::string>(keys, keys + key_count), text ? text : "");
  });
}

kintsugi_code kintsugi_report_old_memory_error(kintsugi_agent* agent, const char* const* keys, size_t key_count,
                                               int64_t age_ms, const char* text) {
  return Marked(agent, [&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(CheckKeys("kintsugi_report_old_memory_error", keys, key_count));
    const ErrorTime when = age_ms < 0
                               ? ErrorTime::Unknown()
                               : ErrorTime::At(SteadyClock::SteadyNow() - Duration(std::chrono::milliseconds(age_ms)));
    return agent->agent->ReportMemoryError(std::vector<std::string>(keys, keys + key_count), text ? text : "", when);
  });
}

const char* kintsugi_why(const kintsugi_agent* agent) { return agent ? agent->why.c_str() : ""; }
