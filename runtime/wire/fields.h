// The list: every field of every message between agents and the controller, named once (field.h says how to read it).
//
// Numbers are never reused: control.proto, which is written from this, remembers those that are gone. The order is that
// of words and digests, not that of the wire.
#pragma once

#include <string>

#include "runtime/core/held_state.h"
#include "runtime/core/messages.h"
#include "runtime/core/policy.h"
#include "runtime/wire/forms.h"
#include "runtime/wire/rank_report.h"

namespace kintsugi::wire {

// ---- what messages are made of -------------------------------------------------------------------------------------

KINTSUGI_FIELDS(Term, (number, 2), (controller_id, 3))
KINTSUGI_FIELDS(core::Header, (term, 0, Inline), (generation, 4), (rank, 5), (incarnation, 6))
KINTSUGI_FIELDS(Progress, (step, 2, PlainStep), (phase, 3), (activity, 4), (collectives, 5))
KINTSUGI_FIELDS(FlatRange, (start, 7), (stop, 8))
KINTSUGI_FIELDS(TensorSummary, (key, 1), (dtype, 2), (global_shape, 3), (local_shape, 4), (global_offset, 5),
                (flattened_range, 6, Flagged), (layout, 9))
KINTSUGI_FIELDS(ObjectSummary, (key, 1), (kind, 2))
KINTSUGI_FIELDS(RegistrySummary, (tensors, 1), (objects, 2))
KINTSUGI_FIELDS(core::GroupClaim, (ranks, 2), (replicas, 3))
KINTSUGI_FIELDS(RepairMove, (layout, 1), (destination, 2), (sources, 3), (keys, 4), (adopt, 5),
                (snapshot_of, 6, RankPlusOne))
KINTSUGI_FIELDS(SaveEntry, (layout, 1), (holders, 2), (objects_of, 3))
KINTSUGI_FIELDS(UnreachedPeer, (rank, 1), (port, 2))
KINTSUGI_FIELDS(core::Offer, (slice, 18), (worlds, 19), (own_object, 20, SaidIfAny), (any_layout, 21, SaidIfAny))
KINTSUGI_FIELDS(core::Registered, (registry, 1), (layouts, 2, Rows<"layout">))
KINTSUGI_FIELDS(core::HeldState, (of, 3), (step, 4), (clean, 5))
KINTSUGI_FIELDS(core::Checkpoint, (step, 1), (directory, 2))
KINTSUGI_FIELDS(core::CollectiveMark, (number, 1), (kind, 2), (type, 3), (operation, 4), (root, 5, RankOrNone),
                (size, 6), (parts, 7), (order, 8), (end, 9), (entered, 10, Limit), (waited, 11))
KINTSUGI_FIELDS(core::GroupMarks, (name, 1), (ranks, 2), (entered, 3), (newest, 4))
KINTSUGI_FIELDS(core::Stand, (at, 1), (call, 2), (state, 3), (python_stopped, 4), (stack, 5))

// What every frame between an agent and the controller has.
struct AgentSeal {
  std::string job;
  core::Header header;
  TimePoint sent = {};  // by the sender's clock; only with a message that holds an instant
};
KINTSUGI_FIELDS(AgentSeal, (job, 1), (header, 0, Inline), (sent, 7))

// ---- agent -> controller -------------------------------------------------------------------------------------------

KINTSUGI_MESSAGE(10, "join", core::JoinRequest, (pid, 1), (host, 2), (watched_by_launcher, 3), (standing, 4),
                 (joined_before, 5), (crew, 16), (crew_since, 17))
KINTSUGI_MESSAGE(11, "ready", core::Ready, (registry, 0, Inline), (layouts, 3, Rows<"layout">), (gate, 4), (warning, 5),
                 (unregistered, 6), (state_held, 7), (offer, 0, Inline))
KINTSUGI_MESSAGE(12, "beat", core::Beat, (count, 1), (place, 0, Inline))
KINTSUGI_MESSAGE(13, "fault", core::FaultReport, (kind, 1), (text, 2), (damaged_keys, 3), (step, 4), (in_update, 5),
                 (since, 6), (suspect_from, 7), (signature, 8))
KINTSUGI_MESSAGE(14, "locked", core::LockReply, (state, 1), (step, 2), (valid, 3))
KINTSUGI_MESSAGE(15, "parked", core::Parked, (state, 1), (step, 2), (valid, 3), (objects_ahead, 4))
KINTSUGI_MESSAGE(16, "done", core::PhaseDone, (phase, 1), (code, 2), (text, 3), (bytes_moved, 4), (digests, 5),
                 (loaded, 6), (unregistered, 7), (objects_ahead, 8), (unreached, 9), (next, 10, SaidIfAny),
                 (back_from, 11, SaidIfAny))
KINTSUGI_MESSAGE(17, "resumed", core::Resumed)
KINTSUGI_MESSAGE(18, "finished", core::Finished, (step, 1), (objects_ahead, 2), (changed, 3))
KINTSUGI_MESSAGE(19, "at_gate", core::GateEntered, (step, 1))
KINTSUGI_MESSAGE(20, "at_save_point", core::SavePoint, (step, 1), (objects_ahead, 2))
KINTSUGI_MESSAGE(21, "pause_stored", core::PauseAck, (begun, 1))
KINTSUGI_MESSAGE(22, "store_set", core::StoreSet, (key, 1), (value, 2))
KINTSUGI_MESSAGE(23, "store_get", core::StoreGet, (request, 1), (key, 2))
KINTSUGI_MESSAGE(24, "published", core::Published, (step, 1), (directory, 2))
KINTSUGI_MESSAGE(25, "step_report", RankReport, (step, 1), (loss, 2), (samples, 3))
KINTSUGI_MESSAGE(26, "snapshot_copied", SnapshotReport, (owner, 1), (step, 2), (code, 3), (text, 4), (digests, 5),
                 (cost, 6, Cost), (begun, 7), (counts, 8))
KINTSUGI_MESSAGE(27, "inexact", core::Inexact, (text, 1))
KINTSUGI_MESSAGE(71, "marks", core::RankMarks, (round, 1), (place, 0, Inline), (stand, 6), (groups, 7))

// ---- controller -> agent -------------------------------------------------------------------------------------------

KINTSUGI_MESSAGE(40, "joined", core::JoinReply, (accepted, 1), (text, 2), (replacement, 3), (resume_step, 4),
                 (save_every, 5), (verify_every, 7), (resumes, 8), (injections, 6), (crew, 19, SaidIfAny))
KINTSUGI_MESSAGE(41, "lock", core::LockOrder)
KINTSUGI_MESSAGE(42, "stop", core::StopOrder, (step, 1), (step_exists, 2), (stop_limit, 3, Limit),
                 (park_limit, 4, Limit), (fault_ranks, 5), (activity_limit, 6, Limit), (step_limit, 7, Limit))
KINTSUGI_MESSAGE(43, "order", core::PhaseOrder, (phase, 1), (step, 2), (rung, 3), (fault_ranks, 11),
                 (replaced_ranks, 12), (limit, 4, Limit), (partners, 5), (moves, 6), (entries, 7), (directory, 8),
                 (from_snapshot, 10), (moves_latest, 9, Inverted), (unregistered, 13), (begins, 14),
                 (crew, 25, SaidIfAny), (relayout, 26, SaidIfAny), (holders, 27, SaidIfAny),
                 (registered_in, 28, SaidIfAny))
KINTSUGI_MESSAGE(44, "resume", core::ResumeOrder, (step, 1), (snapshot, 2))
KINTSUGI_MESSAGE(45, "continue", core::ContinueOrder)
KINTSUGI_MESSAGE(46, "pause_at", core::PauseAt, (step, 1))
KINTSUGI_MESSAGE(47, "gate_open", core::GateOpen, (step, 1))
KINTSUGI_MESSAGE(48, "store_answer", core::StoreReply, (request, 1), (code, 2), (value, 3))
KINTSUGI_MESSAGE(49, "inject", core::InjectOrder, (injection, 1))
KINTSUGI_MESSAGE(50, "end", core::EndOrder, (exit_code, 1), (text, 2))
KINTSUGI_MESSAGE(51, "snapshot_at", SnapshotOrder, (step, 1), (keep, 2), (partner, 3, RankOrNone), (of, 4))
KINTSUGI_MESSAGE(72, "ask_marks", core::AskMarks, (round, 1))

// ---- what no field says alone --------------------------------------------------------------------------------------

template <>
struct Whole<SnapshotOrder> {
  static Status Check(const SnapshotOrder& order) {
    if (order.step > Step(0) && order.step != order.keep) return Status::Ok();
    return OutOfRange("snapshot", order.step.ToString() + ", keeping " + order.keep.ToString());
  }
};

}  // namespace kintsugi::wire
