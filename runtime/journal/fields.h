// Fields: every field of everything that goes into a ControllerCore and comes out of it, named once.
//
// An archive is anything with All(names, values...): text.h writes and reads fields as words, digest.h hashes them.
// Invariants: the structured bindings name every field, so a new one does not compile here until it is added; a field
// that was forgotten would be a recording whose replay differs. A name that stands at another field's place is a failed
// check at the first use.
#pragma once

#include <concepts>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/core/controller_types.h"
#include "runtime/core/policy.h"
#include "runtime/journal/input.h"

namespace kintsugi::journal {

// Bindings go by place and not by name: each is the field that it is called after.
#define KINTSUGI_PARENS ()
#define KINTSUGI_EXPAND(...) KINTSUGI_EXPAND_1(KINTSUGI_EXPAND_1(KINTSUGI_EXPAND_1(KINTSUGI_EXPAND_1(__VA_ARGS__))))
#define KINTSUGI_EXPAND_1(...) KINTSUGI_EXPAND_2(KINTSUGI_EXPAND_2(KINTSUGI_EXPAND_2(KINTSUGI_EXPAND_2(__VA_ARGS__))))
#define KINTSUGI_EXPAND_2(...) KINTSUGI_EXPAND_3(KINTSUGI_EXPAND_3(KINTSUGI_EXPAND_3(KINTSUGI_EXPAND_3(__VA_ARGS__))))
#define KINTSUGI_EXPAND_3(...) __VA_ARGS__
#define KINTSUGI_IN_PLACE(field, ...)                                                                             \
  KINTSUGI_CHECK(static_cast<const void*>(&(field)) == &s.field, "the list names this field at another's place"); \
  __VA_OPT__(KINTSUGI_IN_PLACE_AGAIN KINTSUGI_PARENS(__VA_ARGS__))
#define KINTSUGI_IN_PLACE_AGAIN() KINTSUGI_IN_PLACE

#define KINTSUGI_FIELDS(Type, ...)                    \
  template <typename Archive, typename S>             \
  requires std::same_as<std::remove_const_t<S>, Type> \
  void Fields(Archive& archive, S& s) {               \
    auto& [__VA_ARGS__] = s;                          \
    KINTSUGI_EXPAND(KINTSUGI_IN_PLACE(__VA_ARGS__))   \
    archive.All(#__VA_ARGS__, __VA_ARGS__);           \
  }
#define KINTSUGI_NO_FIELDS(Type)                      \
  template <typename Archive, typename S>             \
  requires std::same_as<std::remove_const_t<S>, Type> \
  void Fields(Archive&, S&) { static_assert(std::is_empty_v<Type>); }

// What messages are made of.
KINTSUGI_FIELDS(Term, number, controller_id)
KINTSUGI_FIELDS(Progress, step, phase, activity)
KINTSUGI_FIELDS(FlatRange, start, stop)
KINTSUGI_FIELDS(TensorSummary, key, dtype, global_shape, local_shape, global_offset, flattened_range, layout)
KINTSUGI_FIELDS(ObjectSummary, key, kind)
KINTSUGI_FIELDS(RegistrySummary, tensors, objects)
KINTSUGI_FIELDS(RepairMove, layout, destination, sources, keys, adopt, snapshot_of)
KINTSUGI_FIELDS(core::HeldState, of, step, clean)
KINTSUGI_FIELDS(SaveEntry, layout, holders, objects_of)
KINTSUGI_FIELDS(core::GroupClaim, ranks, replicas)
KINTSUGI_FIELDS(core::Header, term, generation, rank, incarnation)

// Agent -> controller.
KINTSUGI_FIELDS(core::JoinRequest, pid, host, watched_by_launcher, standing, joined_before)
KINTSUGI_FIELDS(core::Ready, registry, layouts, gate, warning, unregistered)
KINTSUGI_FIELDS(core::Beat, count, place)
KINTSUGI_FIELDS(core::FaultReport, kind, text, damaged_keys, step, in_update, since, suspect_from)
KINTSUGI_FIELDS(core::LockReply, state, step, valid)
KINTSUGI_FIELDS(core::Parked, state, step, valid)
KINTSUGI_FIELDS(core::PhaseDone, phase, code, text, bytes_moved, digests, loaded, unregistered)
KINTSUGI_NO_FIELDS(core::Resumed)
KINTSUGI_FIELDS(core::Finished, step)
KINTSUGI_FIELDS(core::GateEntered, step)
KINTSUGI_FIELDS(core::SavePoint, step)
KINTSUGI_FIELDS(core::PauseAck, begun)
KINTSUGI_FIELDS(core::StoreSet, key, value)
KINTSUGI_FIELDS(core::StoreGet, request, key)
KINTSUGI_FIELDS(core::Published, step, directory)
KINTSUGI_FIELDS(SnapshotReport, owner, step, code, text, digests, cost, begun)

// Controller -> agent.
KINTSUGI_FIELDS(core::JoinReply, accepted, text, replacement, resume_step, save_every, verify_every, resumes,
                injections)
KINTSUGI_NO_FIELDS(core::LockOrder)
KINTSUGI_FIELDS(core::StopOrder, step, step_exists, stop_limit, park_limit, fault_ranks)
KINTSUGI_FIELDS(core::PhaseOrder, phase, step, rung, fault_ranks, replaced_ranks, limit, partners, moves, entries,
                directory, from_snapshot, moves_latest, unregistered)
KINTSUGI_FIELDS(core::ResumeOrder, step)
KINTSUGI_NO_FIELDS(core::ContinueOrder)
KINTSUGI_FIELDS(core::PauseAt, step)
KINTSUGI_FIELDS(core::GateOpen, step)
KINTSUGI_FIELDS(core::StoreReply, request, code, value)
KINTSUGI_FIELDS(core::InjectOrder, injection)
KINTSUGI_FIELDS(core::EndOrder, exit_code, text)
KINTSUGI_FIELDS(SnapshotOrder, step, keep, partner, of)

// Events. FromAgent is a header and a message: whoever uses fields takes it apart.
KINTSUGI_FIELDS(core::ConnectionClosed, rank, incarnation)
KINTSUGI_FIELDS(core::ProcessExited, rank, incarnation, cause, since, never_began)
KINTSUGI_NO_FIELDS(core::OperatorSave)
KINTSUGI_NO_FIELDS(core::OperatorStop)
KINTSUGI_NO_FIELDS(core::OperatorPause)
KINTSUGI_NO_FIELDS(core::OperatorContinue)
KINTSUGI_FIELDS(core::OperatorReplace, rank)
KINTSUGI_FIELDS(core::OperatorInject, rank, injection)
KINTSUGI_FIELDS(core::ProcessFound, rank, incarnation)
KINTSUGI_NO_FIELDS(core::Tick)
KINTSUGI_FIELDS(core::SparesWaiting, first, ranks, waiting)
KINTSUGI_FIELDS(core::RanksMoved, first, ranks, node)
KINTSUGI_FIELDS(core::StateHeld, rank, held)
KINTSUGI_FIELDS(core::TieRuleTaken, rule)
KINTSUGI_FIELDS(core::WitnessWord, until)
KINTSUGI_FIELDS(Injections, rank, injections)

// Actions. Send is a header and a message, IncidentClosed a record.
KINTSUGI_FIELDS(core::SpawnProcess, rank, incarnation)
KINTSUGI_FIELDS(core::KillProcess, rank, incarnation, reason)
KINTSUGI_FIELDS(core::Transition, from, to, incident, attempt, generation, reason)
KINTSUGI_FIELDS(core::PhaseSpan, phase, attempt, generation, begin, end)
KINTSUGI_FIELDS(core::RankSpan, rank, phase, attempt, begin, end)
KINTSUGI_FIELDS(core::RungReason, rung, reason, text)
KINTSUGI_FIELDS(core::AttemptRecord, attempt, rung, ended_by)
KINTSUGI_FIELDS(core::IncidentRecord, id, signal, cause, ranks, step, begun, attempts, term, generation, rung, reasons,
                earlier, fault_at, detected_at, parked_at, rebuilt_at, repaired_at, resumed_at, bytes_moved, sources,
                phases, rank_spans)
KINTSUGI_FIELDS(core::StepDecided, step)
KINTSUGI_FIELDS(core::CheckpointReady, step, directory)
KINTSUGI_FIELDS(core::RunEnded, exit_code, text, committed, final_digest)
KINTSUGI_FIELDS(core::Notice, rank, text)
KINTSUGI_NO_FIELDS(core::AskWitness)
KINTSUGI_FIELDS(core::SnapshotSettled, step, counts, rank, text, cost)
KINTSUGI_FIELDS(core::SaveSettled, step, saved, rank, text)

KINTSUGI_FIELDS(core::Checkpoint, step, directory)
KINTSUGI_FIELDS(core::Policy, world_size, max_respawns, silence, step_timeout, join_timeout, grace, repairs_per_rank,
                save_every, verify_every, snapshot_every, snapshot_auto, save_directory, resume_directory, resume_step,
                resume_by_trainer, hang_factor, hang_least, can_spawn, adopts, needs_consent, consent_wait, tie_rule,
                takes_over, began, checkpoints)

#undef KINTSUGI_FIELDS
#undef KINTSUGI_NO_FIELDS

}  // namespace kintsugi::journal
