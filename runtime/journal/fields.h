// The list, continued: every field of what goes into a ControllerCore beside messages, of what comes out of it, and of the
// policy, named once (runtime/wire/field.h says how to read it).
//
// A field that was forgotten would be a recording whose replay differs: it does not compile.
#pragma once

#include "runtime/core/controller_types.h"
#include "runtime/core/policy.h"
#include "runtime/journal/input.h"
#include "runtime/wire/fields.h"

namespace kintsugi::wire {

#define KINTSUGI_SAID(word, Type, ...) KINTSUGI_LISTED(kNever, 0, word, Type __VA_OPT__(, ) __VA_ARGS__)

// ---- inputs --------------------------------------------------------------------------------------------------------

// A line of its own (text.h), and bytes that codec.h knows.
KINTSUGI_SAID("", core::FromAgent, (header), (message))
KINTSUGI_MESSAGE(3, "connection_closed", core::ConnectionClosed, (rank, 1), (incarnation, 2))
KINTSUGI_MESSAGE(4, "process_exited", core::ProcessExited, (rank, 1), (incarnation, 2), (cause, 3), (since, 4, Present),
                 (never_began, 5), (left, 6), (code, 7))
KINTSUGI_SIGN(5, "operator_save", core::OperatorSave)
KINTSUGI_SIGN(6, "operator_stop", core::OperatorStop)
KINTSUGI_MESSAGE(7, "operator_inject", core::OperatorInject, (rank, 1), (injection, 2))
KINTSUGI_SIGN(8, "tick", core::Tick)
KINTSUGI_SAID("start", journal::Start)
KINTSUGI_MESSAGE(9, "injections", journal::ArmedInjections, (rank, 1), (injections, 2))
KINTSUGI_MESSAGE(14, "process_found", core::ProcessFound, (rank, 1), (incarnation, 2))
KINTSUGI_MESSAGE(15, "spares_waiting", core::SparesWaiting, (first, 1), (ranks, 2), (waiting, 3))
KINTSUGI_BARE(16, "tie_rule_taken", core::TieRuleTaken, (rule, 16))
KINTSUGI_BARE(17, "witness_word", core::WitnessWord, (until, 17))
KINTSUGI_MESSAGE(18, "state_held", core::StateHeld, (rank, 1), (held, 2, Flagged))
KINTSUGI_SIGN(19, "operator_pause", core::OperatorPause)
KINTSUGI_SIGN(20, "operator_continue", core::OperatorContinue)
KINTSUGI_BARE(21, "operator_replace", core::OperatorReplace, (rank, 21))
KINTSUGI_MESSAGE(22, "ranks_moved", core::RanksMoved, (first, 1), (ranks, 2), (node, 3))
KINTSUGI_BARE(23, "spare_nodes", core::SpareNodes, (here, 23))
KINTSUGI_MESSAGE(24, "launcher_new", core::LauncherNew, (first, 1), (ranks, 2))
KINTSUGI_MESSAGE(25, "operator_drain", core::OperatorDrain, (first, 1), (ranks, 2))
KINTSUGI_BARE(26, "operator_scale", core::OperatorScale, (ranks, 26))
KINTSUGI_MESSAGE(27, "node_absent", core::NodeAbsent, (first, 1), (ranks, 2), (absent, 3))
KINTSUGI_MESSAGE(28, "places_away", core::PlacesAway, (ranks, 1))

// ---- what comes out: as words and as a digest, never as bytes --------------------------------------------------------

KINTSUGI_FIELDS(core::PhaseSpan, (phase), (attempt), (generation), (begin), (end))
KINTSUGI_FIELDS(core::RankSpan, (rank), (phase), (attempt), (begin), (end))
KINTSUGI_FIELDS(core::RungReason, (rung), (reason), (text))
KINTSUGI_FIELDS(core::AttemptRecord, (attempt), (rung), (ended_by))
KINTSUGI_FIELDS(core::IncidentRecord, (id), (signal), (cause), (ranks), (step), (begun), (attempts), (term),
                (generation), (rung), (reasons), (earlier), (fault_at), (detected_at), (parked_at), (rebuilt_at),
                (repaired_at), (resumed_at), (bytes_moved), (sources), (phases), (rank_spans), (left, 0, SaidIfAny),
                (came, 0, SaidIfAny))

KINTSUGI_SAID("->", core::Send, (header), (message))
KINTSUGI_SAID("spawn", core::SpawnProcess, (rank), (incarnation))
KINTSUGI_SAID("kill", core::KillProcess, (rank), (incarnation), (reason))
KINTSUGI_SAID("==", core::Transition, (from), (to), (incident), (attempt), (generation), (reason))
KINTSUGI_SAID("incident_closed", core::IncidentClosed, (record))
KINTSUGI_SAID("step_decided", core::StepDecided, (step))
KINTSUGI_SAID("checkpoint_ready", core::CheckpointReady, (step), (directory))
KINTSUGI_SAID("run_ended", core::RunEnded, (exit_code), (text), (committed), (final_digest), (not_compared))
KINTSUGI_SAID("notice", core::Notice, (rank), (text))
KINTSUGI_SAID("ask_witness", core::AskWitness)
KINTSUGI_SAID("snapshot_settled", core::SnapshotSettled, (step), (counts), (rank), (text), (cost))
KINTSUGI_SAID("inexact_news", core::InexactNews, (rank), (text))
KINTSUGI_SAID("road_closed", core::RoadClosed, (from), (to), (port), (from_host), (to_host))
KINTSUGI_SAID("node_cut_off", core::NodeCutOff, (first), (text))
KINTSUGI_SAID("replace_refused", core::ReplaceRefused, (rank), (why))
KINTSUGI_SAID("attempts_grow", core::AttemptsGrow, (incident), (attempts), (since), (reason))
KINTSUGI_FIELDS(core::FoldedStack, (ranks), (text))
KINTSUGI_FIELDS(core::Blame, (kind), (ranks), (text), (stacks))
KINTSUGI_SAID("hang_explained", core::HangExplained, (blame))
KINTSUGI_SAID("crew_changed", core::CrewChanged, (ranks), (left), (step), (came, 0, SaidIfAny))
KINTSUGI_SAID("scale_refused", core::ScaleRefused, (ranks), (why))
KINTSUGI_SAID("save_settled", core::SaveSettled, (step), (saved), (rank), (text))

// ---- what the core goes by: as words --------------------------------------------------------------------------------

KINTSUGI_FIELDS(core::Policy, (world_size), (node_ranks), (max_respawns), (silence), (step_timeout), (join_timeout),
                (grace), (repairs_per_rank), (save_every), (verify_every), (snapshot_every), (snapshot_auto),
                (save_directory), (resume_directory), (resume_step), (begins_again), (resume_by_trainer), (hang_factor),
                (hang_least), (can_spawn), (adopts), (shrinks), (needs_consent), (consent_wait), (tie_rule),
                (takes_over), (began), (incidents_before), (pause_asked), (part), (checkpoints),
                (ranks_wanted, 0, SaidIfAny))

#undef KINTSUGI_SAID

}  // namespace kintsugi::wire
