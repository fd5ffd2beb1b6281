#include <chrono>

#include "runtime/wire/codec_parts.h"

namespace kintsugi::wire {

using namespace pb;
namespace {

// Longer than any run: what is added to an instant must not overflow.
constexpr int64_t kLimitMax = std::chrono::nanoseconds(std::chrono::hours(24 * 365)).count();

template <typename Message>
Result<core::ControllerMessage> TakeStep(const StepOnly& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  return core::ControllerMessage(Message{Step(in.step())});
}

Status CheckLimit(int64_t limit_ns) {
  if (limit_ns < 0 || limit_ns > kLimitMax) return OutOfRange("limit", std::to_string(limit_ns));
  return Status::Ok();
}

Result<core::ControllerMessage> TakeStopOrder(const StopOrder& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  KINTSUGI_RETURN_IF_ERROR(CheckLimit(in.stop_limit_ns()));
  KINTSUGI_RETURN_IF_ERROR(CheckLimit(in.park_limit_ns()));
  core::StopOrder m{Step(in.step()), in.step_exists(), Duration(in.stop_limit_ns()), Duration(in.park_limit_ns()), {}};
  KINTSUGI_ASSIGN_OR_RETURN(m.fault_ranks, TakeRanks(in.fault_ranks()));
  return core::ControllerMessage(std::move(m));
}

Result<core::ControllerMessage> TakePhaseOrder(const PhaseOrder& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("phase", in.phase(), static_cast<uint32_t>(core::kPhaseCount) - 1));
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("rung", in.rung(), static_cast<uint32_t>(Rung::kExit)));
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  KINTSUGI_RETURN_IF_ERROR(CheckLimit(in.limit_ns()));
  core::PhaseOrder m;
  m.phase = static_cast<core::Phase>(in.phase());
  m.step = Step(in.step());
  m.rung = static_cast<Rung>(in.rung());
  m.limit = Duration(in.limit_ns());
  KINTSUGI_ASSIGN_OR_RETURN(m.partners, TakeRanks(in.partners()));
  KINTSUGI_ASSIGN_OR_RETURN(m.fault_ranks, TakeRanks(in.fault_ranks()));
  KINTSUGI_ASSIGN_OR_RETURN(m.replaced_ranks, TakeRanks(in.replaced_ranks()));
  for (const Move& move : in.moves()) {
    if (move.destination() < 0) return OutOfRange("rank", std::to_string(move.destination()));
    KINTSUGI_ASSIGN_OR_RETURN(std::vector<Rank> sources, TakeRanks(move.sources()));
    if (move.snapshot_of() < 0 || move.snapshot_of() > INT32_MAX)
      return OutOfRange("rank", std::to_string(move.snapshot_of()));
    m.moves.push_back({move.layout(),
                       Rank(move.destination()),
                       std::move(sources),
                       {move.keys().begin(), move.keys().end()},
                       move.adopt(),
                       Rank(static_cast<int32_t>(move.snapshot_of() - 1))});
  }
  for (const Entry& entry : in.entries()) {
    KINTSUGI_ASSIGN_OR_RETURN(std::vector<Rank> holders, TakeRanks(entry.holders()));
    KINTSUGI_ASSIGN_OR_RETURN(std::vector<Rank> objects_of, TakeRanks(entry.objects_of()));
    m.entries.push_back({entry.layout(), std::move(holders), std::move(objects_of)});
  }
  m.directory = in.directory();
  m.from_snapshot = in.from_snapshot();
  m.moves_latest = !in.keeps_latest();
  m.unregistered.assign(in.unregistered().begin(), in.unregistered().end());
  return core::ControllerMessage(std::move(m));
}

Result<core::ControllerMessage> TakeSnapshotOrder(const SnapshotOrder& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.keep()));
  if (in.step() == 0 || in.step() == in.keep())
    return OutOfRange("snapshot", std::to_string(in.step()) + ", keeping " + std::to_string(in.keep()));
  if (in.partner() < -1) return OutOfRange("rank", std::to_string(in.partner()));
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<Rank> of, TakeRanks(in.of()));
  return core::ControllerMessage(
      kintsugi::SnapshotOrder{Step(in.step()), Step(in.keep()), Rank(in.partner()), std::move(of)});
}

}  // namespace

void Put(const core::JoinReply& m, Envelope* out) {
  auto* w = out->mutable_join_reply();
  w->set_accepted(m.accepted);
  w->set_text(m.text);
  w->set_replacement(m.replacement);
  w->set_resume_step(m.resume_step.value());
  w->set_save_every(m.save_every);
  w->set_verify_every(m.verify_every);
  w->set_resumes(m.resumes);
  for (const std::string& injection : m.injections) w->add_injections(injection);
}

void Put(const core::LockOrder&, Envelope* out) { out->mutable_lock_order(); }

void Put(const core::StopOrder& m, Envelope* out) {
  auto* w = out->mutable_stop_order();
  w->set_step(m.step.value());
  w->set_step_exists(m.step_exists);
  w->set_stop_limit_ns(m.stop_limit.count());
  w->set_park_limit_ns(m.park_limit.count());
  PutRanks(m.fault_ranks, w->mutable_fault_ranks());
}

void Put(const core::PhaseOrder& m, Envelope* out) {
  auto* w = out->mutable_phase_order();
  w->set_phase(static_cast<uint32_t>(m.phase));
  w->set_step(m.step.value());
  w->set_rung(static_cast<uint32_t>(m.rung));
  w->set_limit_ns(m.limit.count());
  PutRanks(m.partners, w->mutable_partners());
  PutRanks(m.fault_ranks, w->mutable_fault_ranks());
  PutRanks(m.replaced_ranks, w->mutable_replaced_ranks());
  for (const RepairMove& move : m.moves) {
    Move* out_move = w->add_moves();
    out_move->set_layout(move.layout);
    out_move->set_destination(move.destination.value());
    PutRanks(move.sources, out_move->mutable_sources());
    for (const std::string& key : move.keys) out_move->add_keys(key);
    out_move->set_adopt(move.adopt);
    out_move->set_snapshot_of(int64_t{move.snapshot_of.value()} + 1);
  }
  for (const SaveEntry& entry : m.entries) {
    Entry* out_entry = w->add_entries();
    out_entry->set_layout(entry.layout);
    PutRanks(entry.holders, out_entry->mutable_holders());
    PutRanks(entry.objects_of, out_entry->mutable_objects_of());
  }
  w->set_directory(m.directory);
  w->set_from_snapshot(m.from_snapshot);
  w->set_keeps_latest(!m.moves_latest);
  for (const std::string& key : m.unregistered) w->add_unregistered(key);
}

void Put(const core::ResumeOrder& m, Envelope* out) { out->mutable_resume_order()->set_step(m.step.value()); }
void Put(const core::ContinueOrder&, Envelope* out) { out->mutable_continue_order(); }
void Put(const core::PauseAt& m, Envelope* out) { out->mutable_pause_at()->set_step(m.step.value()); }
void Put(const kintsugi::SnapshotOrder& m, Envelope* out) {
  auto* w = out->mutable_snapshot_order();
  w->set_step(m.step.value());
  w->set_keep(m.keep.value());
  w->set_partner(m.partner.value());
  PutRanks(m.of, w->mutable_of());
}
void Put(const core::GateOpen& m, Envelope* out) { out->mutable_gate_open()->set_step(m.step.value()); }

void Put(const core::StoreReply& m, Envelope* out) {
  auto* w = out->mutable_store_reply();
  w->set_request(m.request);
  w->set_code(static_cast<uint32_t>(m.code));
  w->set_value(m.value.data(), m.value.size());
}

void Put(const core::InjectOrder& m, Envelope* out) { out->mutable_inject_order()->set_injection(m.injection); }

void Put(const core::EndOrder& m, Envelope* out) {
  out->mutable_end_order()->set_exit_code(m.exit_code);
  out->mutable_end_order()->set_text(m.text);
}

Result<core::ControllerMessage> TakeController(const Envelope& in) {
  switch (in.controller_case()) {
    case Envelope::kJoinReply: {
      const JoinReply& w = in.join_reply();
      KINTSUGI_RETURN_IF_ERROR(CheckStep(w.resume_step()));
      return core::ControllerMessage(core::JoinReply{w.accepted(),
                                                     w.text(),
                                                     w.replacement(),
                                                     Step(w.resume_step()),
                                                     w.save_every(),
                                                     w.verify_every(),
                                                     w.resumes(),
                                                     {w.injections().begin(), w.injections().end()}});
    }
    case Envelope::kLockOrder: return core::ControllerMessage(core::LockOrder{});
    case Envelope::kStopOrder: return TakeStopOrder(in.stop_order());
    case Envelope::kPhaseOrder: return TakePhaseOrder(in.phase_order());
    case Envelope::kResumeOrder: return TakeStep<core::ResumeOrder>(in.resume_order());
    case Envelope::kContinueOrder: return core::ControllerMessage(core::ContinueOrder{});
    case Envelope::kPauseAt: return TakeStep<core::PauseAt>(in.pause_at());
    case Envelope::kGateOpen: return TakeStep<core::GateOpen>(in.gate_open());
    case Envelope::kStoreReply: {
      const StoreReply& w = in.store_reply();
      KINTSUGI_RETURN_IF_ERROR(CheckEnum("status code", w.code(), static_cast<uint32_t>(StatusCode::kInternal)));
      return core::ControllerMessage(core::StoreReply{
          w.request(), static_cast<StatusCode>(w.code()), {w.value().begin(), w.value().end()}});
    }
    case Envelope::kSnapshotOrder:
      return TakeSnapshotOrder(in.snapshot_order());
    case Envelope::kInjectOrder: return core::ControllerMessage(core::InjectOrder{in.inject_order().injection()});
    case Envelope::kEndOrder:
      return core::ControllerMessage(core::EndOrder{in.end_order().exit_code(), in.end_order().text()});
    default: return Status(StatusCode::kInvalidArgument, "the frame holds no message of a controller");
  }
}

}  // namespace kintsugi::wire
