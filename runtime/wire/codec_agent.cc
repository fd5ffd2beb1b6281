#include <chrono>

#include "runtime/wire/codec_parts.h"

namespace kintsugi::wire {

using namespace pb;
namespace {

// Longer than any copy: what is computed from it must not overflow.
constexpr int64_t kCostMax = std::chrono::nanoseconds(std::chrono::hours(24 * 365)).count();

Result<core::AgentMessage> TakeReady(const Ready& in) {
  core::Ready m;
  for (const Tensor& t : in.tensors()) {
    KINTSUGI_RETURN_IF_ERROR(CheckEnum("dtype", t.dtype(), static_cast<uint32_t>(kDTypeLast)));
    TensorSummary s{t.key(),
                    static_cast<DType>(t.dtype()),
                    {t.global_shape().begin(), t.global_shape().end()},
                    {t.local_shape().begin(), t.local_shape().end()},
                    {t.global_offset().begin(), t.global_offset().end()},
                    std::nullopt,
                    t.layout()};
    if (t.flattened()) s.flattened_range = FlatRange{t.flat_start(), t.flat_stop()};
    m.registry.tensors.push_back(std::move(s));
  }
  for (const Object& o : in.objects()) {
    KINTSUGI_RETURN_IF_ERROR(CheckEnum("object kind", o.kind(), static_cast<uint32_t>(ObjectKind::kMirrored)));
    m.registry.objects.push_back({o.key(), static_cast<ObjectKind>(o.kind())});
  }
  for (const Group& g : in.groups()) {
    KINTSUGI_ASSIGN_OR_RETURN(std::vector<Rank> ranks, TakeRanks(g.ranks()));
    m.layouts[g.layout()] = {std::move(ranks), g.replicas()};
  }
  m.gate = in.gate();
  m.warning = in.warning();
  m.unregistered.assign(in.unregistered().begin(), in.unregistered().end());
  return core::AgentMessage(std::move(m));
}

template <typename Message>
Result<core::AgentMessage> TakeGate(const GateReport& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("gate state", in.state(), static_cast<uint32_t>(core::GateState::kTorn)));
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  return core::AgentMessage(Message{static_cast<core::GateState>(in.state()), Step(in.step()), in.valid()});
}

template <typename Message>
Result<core::AgentMessage> TakeStep(const StepOnly& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  return core::AgentMessage(Message{Step(in.step())});
}

Result<core::AgentMessage> TakePhaseDone(const PhaseDone& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("phase", in.phase(), static_cast<uint32_t>(core::kPhaseCount) - 1));
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("status code", in.code(), static_cast<uint32_t>(StatusCode::kInternal)));
  core::PhaseDone m{static_cast<core::Phase>(in.phase()), static_cast<StatusCode>(in.code()), in.text(),
                    in.bytes_moved(), {}, Step(in.loaded()), {in.unregistered().begin(), in.unregistered().end()}};
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.loaded()));
  for (const auto& [layout, digest] : in.digests()) m.digests[layout] = digest;
  return core::AgentMessage(std::move(m));
}

Result<core::AgentMessage> TakeBeat(const Beat& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("train phase", in.phase(), static_cast<uint32_t>(kTrainPhases.back().phase)));
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("activity", in.activity(), static_cast<uint32_t>(kActivityNames.size()) - 1));
  return core::AgentMessage(
      core::Beat{in.count(), {in.step(), TrainPhaseFromNumber(in.phase()), ActivityFromNumber(in.activity())}});
}

Result<core::AgentMessage> TakeFault(const FaultReport& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("fault kind", in.kind(), static_cast<uint32_t>(core::FaultKind::kControllerLost)));
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.suspect_from()));
  if (in.since_ns() < 0) return OutOfRange("instant", std::to_string(in.since_ns()));
  return core::AgentMessage(core::FaultReport{static_cast<core::FaultKind>(in.kind()),
                                              in.text(),
                                              {in.damaged_keys().begin(), in.damaged_keys().end()},
                                              Step(in.step()),
                                              in.in_update(),
                                              TimePoint(Duration(in.since_ns())),
                                              Step(in.suspect_from())});
}

Result<core::AgentMessage> TakeJoin(const JoinRequest& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("standing", in.standing(), static_cast<uint32_t>(core::Standing::kRunning)));
  return core::AgentMessage(core::JoinRequest{in.pid(), in.host(), in.watched_by_launcher(),
                                              static_cast<core::Standing>(in.standing()), in.joined_before()});
}

Result<core::AgentMessage> TakeSnapshotReport(const SnapshotReport& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.step()));
  KINTSUGI_RETURN_IF_ERROR(CheckStep(in.begun()));
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("status code", in.code(), static_cast<uint32_t>(StatusCode::kInternal)));
  if (in.owner() < 0) return OutOfRange("rank", std::to_string(in.owner()));
  if (in.cost_ns() < 0 || in.cost_ns() > kCostMax) return OutOfRange("cost", std::to_string(in.cost_ns()));
  kintsugi::SnapshotReport m{Rank(in.owner()),       Step(in.step()), static_cast<StatusCode>(in.code()), in.text(), {},
                             Duration(in.cost_ns()), Step(in.begun())};
  for (const auto& [layout, digest] : in.digests()) m.digests[layout] = digest;
  return core::AgentMessage(std::move(m));
}

}  // namespace

void Put(const core::JoinRequest& m, Envelope* out) {
  auto* w = out->mutable_join_request();
  w->set_pid(m.pid);
  w->set_host(m.host);
  w->set_watched_by_launcher(m.watched_by_launcher);
  w->set_standing(static_cast<uint32_t>(m.standing));
  w->set_joined_before(m.joined_before);
}

void Put(const core::Ready& m, Envelope* out) {
  auto* w = out->mutable_ready();
  for (const TensorSummary& t : m.registry.tensors) {
    Tensor* tensor = w->add_tensors();
    tensor->set_key(t.key);
    tensor->set_dtype(static_cast<uint32_t>(t.dtype));
    tensor->mutable_global_shape()->Add(t.global_shape.begin(), t.global_shape.end());
    tensor->mutable_local_shape()->Add(t.local_shape.begin(), t.local_shape.end());
    tensor->mutable_global_offset()->Add(t.global_offset.begin(), t.global_offset.end());
    tensor->set_layout(t.layout);
    if (!t.flattened_range) continue;
    tensor->set_flattened(true);
    tensor->set_flat_start(t.flattened_range->start);
    tensor->set_flat_stop(t.flattened_range->stop);
  }
  for (const ObjectSummary& o : m.registry.objects) {
    Object* object = w->add_objects();
    object->set_key(o.key);
    object->set_kind(static_cast<uint32_t>(o.kind));
  }
  for (const auto& [layout, claim] : m.layouts) {
    Group* group = w->add_groups();
    group->set_layout(layout);
    group->set_replicas(claim.replicas);
    for (Rank rank : claim.ranks) group->add_ranks(rank.value());
  }
  w->set_gate(m.gate);
  w->set_warning(m.warning);
  for (const std::string& key : m.unregistered) w->add_unregistered(key);
}

void Put(const core::Beat& m, Envelope* out) {
  auto* w = out->mutable_beat();
  w->set_count(m.count);
  w->set_step(m.place.step);
  w->set_phase(m.place.phase ? static_cast<uint32_t>(*m.place.phase) : 0);
  w->set_activity(static_cast<uint32_t>(m.place.activity));
}

void Put(const core::FaultReport& m, Envelope* out) {
  auto* w = out->mutable_fault_report();
  w->set_kind(static_cast<uint32_t>(m.kind));
  w->set_text(m.text);
  for (const std::string& key : m.damaged_keys) w->add_damaged_keys(key);
  w->set_step(m.step.value());
  w->set_in_update(m.in_update);
  w->set_since_ns(m.since.nanoseconds());
  w->set_suspect_from(m.suspect_from.value());
}

void Put(const core::LockReply& m, Envelope* out) {
  auto* w = out->mutable_lock_reply();
  w->set_state(static_cast<uint32_t>(m.state));
  w->set_step(m.step.value());
  w->set_valid(m.valid);
}

void Put(const core::Parked& m, Envelope* out) {
  auto* w = out->mutable_parked();
  w->set_state(static_cast<uint32_t>(m.state));
  w->set_step(m.step.value());
  w->set_valid(m.valid);
}

void Put(const core::PhaseDone& m, Envelope* out) {
  auto* w = out->mutable_phase_done();
  w->set_phase(static_cast<uint32_t>(m.phase));
  w->set_code(static_cast<uint32_t>(m.code));
  w->set_text(m.text);
  w->set_bytes_moved(m.bytes_moved);
  for (const auto& [layout, digest] : m.digests) (*w->mutable_digests())[layout] = digest;
  w->set_loaded(m.loaded.value());
  for (const std::string& key : m.unregistered) w->add_unregistered(key);
}

void Put(const core::Resumed&, Envelope* out) { out->mutable_resumed(); }
void Put(const core::Finished& m, Envelope* out) { out->mutable_finished()->set_step(m.step.value()); }
void Put(const core::GateEntered& m, Envelope* out) { out->mutable_gate_entered()->set_step(m.step.value()); }
void Put(const core::SavePoint& m, Envelope* out) { out->mutable_save_point()->set_step(m.step.value()); }
void Put(const core::PauseAck& m, Envelope* out) { out->mutable_pause_ack()->set_step(m.begun.value()); }

void Put(const kintsugi::SnapshotReport& m, Envelope* out) {
  auto* w = out->mutable_snapshot_report();
  w->set_owner(m.owner.value());
  w->set_step(m.step.value());
  w->set_code(static_cast<uint32_t>(m.code));
  w->set_text(m.text);
  for (const auto& [layout, digest] : m.digests) (*w->mutable_digests())[layout] = digest;
  w->set_cost_ns(m.cost.count());
  w->set_begun(m.begun.value());
}

void Put(const core::StoreSet& m, Envelope* out) {
  out->mutable_store_set()->set_key(m.key);
  out->mutable_store_set()->set_value(m.value.data(), m.value.size());
}

void Put(const core::StoreGet& m, Envelope* out) {
  out->mutable_store_get()->set_request(m.request);
  out->mutable_store_get()->set_key(m.key);
}

void Put(const core::Published& m, Envelope* out) {
  out->mutable_published()->set_step(m.step.value());
  out->mutable_published()->set_directory(m.directory);
}

Result<core::AgentMessage> TakeAgent(const Envelope& in) {
  switch (in.agent_case()) {
    case Envelope::kJoinRequest:
      return TakeJoin(in.join_request());
    case Envelope::kReady: return TakeReady(in.ready());
    case Envelope::kBeat:
      return TakeBeat(in.beat());
    case Envelope::kFaultReport: return TakeFault(in.fault_report());
    case Envelope::kLockReply: return TakeGate<core::LockReply>(in.lock_reply());
    case Envelope::kParked: return TakeGate<core::Parked>(in.parked());
    case Envelope::kPhaseDone: return TakePhaseDone(in.phase_done());
    case Envelope::kResumed: return core::AgentMessage(core::Resumed{});
    case Envelope::kFinished: return TakeStep<core::Finished>(in.finished());
    case Envelope::kGateEntered: return TakeStep<core::GateEntered>(in.gate_entered());
    case Envelope::kSavePoint: return TakeStep<core::SavePoint>(in.save_point());
    case Envelope::kPauseAck: return TakeStep<core::PauseAck>(in.pause_ack());
    case Envelope::kStoreSet:
      return core::AgentMessage(
          core::StoreSet{in.store_set().key(), {in.store_set().value().begin(), in.store_set().value().end()}});
    case Envelope::kStoreGet:
      return core::AgentMessage(core::StoreGet{in.store_get().request(), in.store_get().key()});
    case Envelope::kSnapshotReport:
      return TakeSnapshotReport(in.snapshot_report());
    case Envelope::kPublished:
      KINTSUGI_RETURN_IF_ERROR(CheckStep(in.published().step()));
      return core::AgentMessage(core::Published{Step(in.published().step()), in.published().directory()});
    default: return Status(StatusCode::kInvalidArgument, "the frame holds no message of an agent");
  }
}

}  // namespace kintsugi::wire
