// Messages between agents and the controller, as plain data; runtime/wire/codec.h puts them on the wire.
//
// Fencing: a message carries the sender's term and generation. The receiving core drops what is older than its own
// (docs/protocol.md, Fencing); what is dropped is counted, never acted on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "callbacks/handlers/orders.h"
#include "callbacks/handlers/snapshot_service.h"
#include "callbacks/state/registry.h"
#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"
#include "runtime/base/train_phase.h"
#include "runtime/core/gate_word.h"
#include "runtime/core/marks.h"
#include "runtime/core/phase.h"
#include "runtime/core/replica_map.h"

namespace kintsugi::core {

// What a fault did to its rank.
enum class FaultKind : uint8_t {
  kProcessExit,     // the process is gone
  kSilence,         // no sign of life within the limit
  kConnectionLost,  // the control connection closed and did not come back
  kException,       // the trainer's loop threw or returned an error
  kCommError,       // a collective or link failed: usually the echo of another rank's death; never breaks its reporter
  kMemoryLow,       // named tensors are damaged, the device context lives
  kMemoryHigh,      // the rank's memory is not to be trusted
  kDigestMismatch,  // replicas differ
  kHandlerFailed,   // a handler returned an error
  kStalled,         // did not finish a phase before its deadline
  kHang,            // its step does not move while its agent lives
  kOperator,        // an operator asked
  kControllerLost,  // the controller before this one died, and not all ranks went on undisturbed
  kRefused,         // the program broke a rule of the library, which says so
};
std::string_view FaultKindName(FaultKind kind);

// What a process says of itself when it joins: all that a controller knows which took over.
enum class Standing : uint8_t {
  kNew,      // has not held the run's state
  kHolds,    // was brought to the run's state, and never released
  kLocked,   // was in its loop; its gate is locked
  kRunning,  // is in its loop, or parked in it with an open gate
};
std::string_view StandingName(Standing standing);

// ---- agent -> controller ---------------------------------------------------------------------------------------

struct JoinRequest {
  uint64_t pid = 0;
  std::string host;
  bool watched_by_launcher = false;  // liveness comes through the launcher's page; no Beat messages follow
  Standing standing = Standing::kNew;
  bool joined_before = false;  // it has a term and a generation: of a connection, or a controller, before this one
  // The crew it was in when it last went on, and the generation that began with it; no ranks and 0: all.
  std::vector<Rank> crew = {};
  Generation crew_since = {};
};
// How its trainer can go on with other ranks (offers.h). No worlds: it cannot.
struct Offer {
  std::vector<Rank> slice;  // ranks that together hold one whole replica of the model, itself included, ascending
  std::vector<int> worlds;  // sizes in which it can run, ascending
  // An object that every rank has for itself, so that one that comes to the run could not have it from others; empty: none.
  std::string own_object = {};
  // Whatever the crew, its ranks register their state as they cut it then, and its pieces move there.
  bool any_layout = false;
  bool operator==(const Offer&) const = default;
};
// Registration is over and the trainer's thread waits inside the guard.
struct Ready {
  RegistrySummary registry;
  std::map<int, GroupClaim> layouts;
  bool gate = true;
  std::string warning;  // what of this registration costs its rank something, for the log; empty: nothing
  std::vector<std::string> unregistered;  // tensors that were registered once and are no part of the state any more
  bool state_held = false;                // its launcher keeps its state whole should the process end
  Offer offer = {};
};
// What a rank holds once its state is cut anew: told when its REBUILD is done, its own from ROLLBACK on.
struct Registered {
  RegistrySummary registry;
  std::map<int, GroupClaim> layouts;
};
struct Beat {
  uint64_t count = 0;
  Progress place;  // the step being computed, and where in it (PlaceOf)
};
struct FaultReport {
  FaultKind kind = FaultKind::kException;
  std::string text;
  std::vector<std::string> damaged_keys;  // kMemoryLow
  Step step;                              // the step being computed
  bool in_update = false;
  TimePoint since;  // earliest instant at which the cause may have acted
  // kMemoryLow, kMemoryHigh: the first update whose gradients may hold what was damaged then; 0: none.
  Step suspect_from;
  std::string signature;  // kException: what was thrown and where; empty: it is compared with no other
};
struct LockReply {
  GateState state = GateState::kCommitted;
  Step step;
  bool valid = true;
};
struct Parked {
  GateState state = GateState::kCommitted;
  Step step;
  bool valid = true;
  bool objects_ahead = false;  // its mirrored objects at the step are newer than what its partners have of them
};
struct PhaseDone {
  Phase phase = Phase::kClean;
  StatusCode code = StatusCode::kOk;
  std::string text;
  uint64_t bytes_moved = 0;
  std::map<int, uint64_t> digests;  // kVerify: per layout
  Step loaded;                      // kRepair from a checkpoint whose step only the trainer's loader knows: that step
  std::vector<std::string> unregistered;  // as Ready's, with what the trainer took out of its state in this task
  bool objects_ahead = false;             // as Parked's, of objects that were adopted in kRepair
  std::vector<UnreachedPeer> unreached;   // kRebuild, where it failed
  std::vector<Registered> next = {};      // kRebuild with relayout: one
  // kRollback: the ranks have agreed to leave out steps from this one on, and all stand behind it. 0: they have not.
  Step back_from = {};
};
struct Resumed {};  // the trainer's loop runs again
struct Finished {   // the loop returned ok; the rank keeps its state until all have finished
  Step step;
  bool objects_ahead = false;  // as Parked's
  bool changed = false;        // its registered tensors are not those of the step any more
};
// Something of the rank is not what an undisturbed run would have.
struct Inexact {
  std::string text;
};
struct GateEntered {
  Step step;
};
struct SavePoint {  // parked at the boundary after `step`
  Step step;
  bool objects_ahead = false;  // as Parked's
};
struct PauseAck {
  Step begun;  // newest step that this rank has begun
};
struct StoreSet {
  std::string key;
  std::vector<uint8_t> value;
};
struct StoreGet {
  uint64_t request = 0;
  std::string key;
};
struct Published {  // a checkpoint became visible
  Step step;
  std::string directory;
};

using AgentMessage =
    std::variant<JoinRequest, Ready, Beat, FaultReport, LockReply, Parked, PhaseDone, Resumed, Finished, GateEntered,
                 SavePoint, PauseAck, StoreSet, StoreGet, Published, SnapshotReport, Inexact, RankMarks>;

// ---- controller -> agent ---------------------------------------------------------------------------------------

struct JoinReply {
  bool accepted = true;
  std::string text;          // why not
  bool replacement = false;  // the rank lived before
  Step resume_step;          // > 0: the run starts from a checkpoint of this step
  uint64_t save_every = 0;
  uint64_t verify_every = 0;
  bool resumes = false;                 // the run starts from a checkpoint, whose step may not be known yet
  std::vector<std::string> injections;  // armed faults for this rank, as "id SPEC"
  std::vector<Rank> crew = {};          // who takes part as the run last went on; no ranks: all
};
struct LockOrder {};
// Meet at `step`: go on if held at its gate, else abandon the next update; then abort collectives and park.
struct StopOrder {
  Step step;
  bool step_exists = true;
  Duration stop_limit = std::chrono::seconds(10);  // for the stop handler
  Duration park_limit = std::chrono::seconds(60);  // from its return until the trainer's thread is out of its step
  std::vector<Rank> fault_ranks;                   // whom the incident began with, as far as is known
  Duration activity_limit{};                       // an activity may go on for so long since it began; 0: it may not
  Duration step_limit{};  // as park_limit, for a thread that stands in its step; 0: that is no other
};
struct PhaseOrder {
  Phase phase = Phase::kClean;
  Step step;
  Rung rung = Rung::kResume;
  std::vector<Rank> fault_ranks;     // whom the incident began with; empty outside of one
  std::vector<Rank> replaced_ranks;  // those whose process is a new one
  Duration limit{};
  std::vector<Rank> partners;
  std::vector<RepairMove> moves;
  std::vector<SaveEntry> entries;
  std::string directory;
  bool begins = false;  // kRebuild: no rank was in its loop yet
  // kRepair with rung reload: from memory, not from `directory`; kRepair and kRollback with relayout: the pieces are the snapshot's.
  bool from_snapshot = false;
  bool moves_latest = true;               // kRename: false for ranks that save without a majority
  std::vector<std::string> unregistered;  // what is no part of the state any more, on whatever rank it was said
  std::vector<Rank> crew = {};            // who takes part in this generation; no ranks: all
  bool relayout = false;                  // kRebuild, kRepair: the state of this crew is cut anew
  std::vector<Rank> holders = {};         // kRepair with relayout: who holds `step`, registered or in its snapshot
  // The newest generation in which state was cut anew for good: what was registered in it counts. 0: what was first.
  Generation registered_in = {};
};
struct ResumeOrder {  // back to the loop, from `step`
  Step step;
  Step snapshot = {};  // the one that counts; 0: none
};
struct ContinueOrder {};  // leave a save point
struct PauseAt {
  Step step;  // park at the boundary after this step; 0: no pause
};
struct GateOpen {
  Step step;
};
struct StoreReply {
  uint64_t request = 0;
  StatusCode code = StatusCode::kOk;
  std::vector<uint8_t> value;
};
struct InjectOrder {
  std::string injection;  // "id SPEC"
};
struct EndOrder {
  int exit_code = 0;
  std::string text;
};

// What did your groups do, and where do you stand? Answered with RankMarks, in any phase.
struct AskMarks {
  uint64_t round = 0;
};

using ControllerMessage = std::variant<JoinReply, LockOrder, StopOrder, PhaseOrder, ResumeOrder, ContinueOrder, PauseAt,
                                       GateOpen, StoreReply, InjectOrder, EndOrder, SnapshotOrder, AskMarks>;

struct Header {
  Term term;
  Generation generation;
  Rank rank;  // the agent's, in both directions
  Incarnation incarnation;
};

}  // namespace kintsugi::core
