// What goes into a ControllerCore and what comes out of it, as plain data.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/core/held_state.h"
#include "runtime/core/ladder.h"
#include "runtime/core/messages.h"
#include "runtime/core/phase.h"

namespace kintsugi::core {

// ---- events ------------------------------------------------------------------------------------------------------

struct FromAgent {
  Header header;
  AgentMessage message;
};
struct ConnectionClosed {
  Rank rank;
  Incarnation incarnation;
};
struct ProcessExited {
  Rank rank;
  Incarnation incarnation;
  std::string cause;               // "killed by SIGKILL", "exited with code 3", ...
  std::optional<TimePoint> since;  // an injector's stamp, where there is one
  bool never_began = false;        // its node is away: nothing is known of the processes before it
  bool left = false;               // by itself, with `code`: nothing ended it
  int code = 0;
};
// What a launcher still has of the process of a rank that has ended; nothing: nothing. Told before the exit, and again
// to a controller that takes over.
struct StateHeld {
  Rank rank;
  std::optional<HeldState> held;
};
// How many warm processes wait on the node of the ranks from `first` on.
struct SparesWaiting {
  Rank first;
  int ranks = 0;
  int waiting = 0;
};
// These ranks' node stays away: another one takes them over. Told when MayMove, and to a controller that takes over before
// it hears of any process. `node`: the one that has them from now on.
struct RanksMoved {
  Rank first;
  int ranks = 0;
  int node = 0;
};
// The node of these ranks has been away for longer than it is worth to wait for, where the run can go on without it; or it
// is here again. Told when MayDoWithout.
struct NodeAbsent {
  Rank first;
  int ranks = 0;
  bool absent = false;
};
// Places of which no rank takes part, and whose nodes are away.
struct PlacesAway {
  std::vector<Rank> ranks;
};
// The launcher of these ranks was started anew and knows nothing (newcomer.h). Told before what it says of them.
struct LauncherNew {
  Rank first;
  int ranks = 0;
};
struct OperatorSave {};
struct OperatorPause {};  // all stand still at one step until OperatorContinue
struct OperatorContinue {};
// A new process for a rank that may be in good health: its process ends, and the incident is repaired as any other is.
struct OperatorReplace {
  Rank rank;
};
// The node of these ranks is to be free of them, and is in good health: they go on on a spare node, which must be here.
struct OperatorDrain {
  Rank first;
  int ranks = 0;
};
// So many ranks are to take part: places that are empty get processes again, or ranks that are well leave.
struct OperatorScale {
  int ranks = 0;
};
// How many nodes wait with no ranks of their own.
struct SpareNodes {
  int here = 0;
};
struct OperatorStop {};  // preemption: finish the step, save, leave
struct OperatorInject {
  Rank rank;
  std::string injection;
};
// A launcher says that this process runs: news to a controller that took over, and to no other.
struct ProcessFound {
  Rank rank;
  Incarnation incarnation;
};
// What decides an even split from now on (witness.h).
struct TieRuleTaken {
  TieRule rule = TieRule::kLowestRank;
};
// This side holds the witness's lease until then; an instant that is over: it does not.
struct WitnessWord {
  TimePoint until;
};
struct Tick {};

using ControllerEvent = std::variant<FromAgent, ConnectionClosed, ProcessExited, OperatorSave, OperatorStop,
                                     OperatorInject, ProcessFound, Tick, SparesWaiting, StateHeld, TieRuleTaken,
                                     WitnessWord, OperatorPause, OperatorContinue, OperatorReplace, RanksMoved,
                                     SpareNodes, LauncherNew, OperatorDrain, OperatorScale, NodeAbsent, PlacesAway>;

// ---- actions -----------------------------------------------------------------------------------------------------

struct Send {
  Header header;
  ControllerMessage message;
};
struct SpawnProcess {
  Rank rank;
  Incarnation incarnation;
};
struct KillProcess {
  Rank rank;
  Incarnation incarnation;
  std::string reason;
};
struct Transition {
  Phase from;
  Phase to;
  uint64_t incident = 0;
  int attempt = 0;
  Generation generation;
  std::string reason;
};

struct PhaseSpan {
  Phase phase;
  int attempt = 0;
  Generation generation;
  TimePoint begin;
  TimePoint end;
};
struct RankSpan {
  Rank rank;
  Phase phase;
  int attempt = 0;
  TimePoint begin;
  TimePoint end;
};
// An attempt that did not bring the run back: what it had chosen, and what ended it.
struct AttemptRecord {
  int attempt = 0;
  std::optional<Rung> rung;  // none: it ended before one was chosen
  std::string ended_by;
};
struct IncidentRecord {
  uint64_t id = 0;
  FaultKind signal = FaultKind::kOperator;
  std::string cause;
  std::vector<Rank> ranks;  // root causes
  std::optional<Step> step;
  // Newest step that any rank had begun when it was stopped: those after `step` are done again.
  std::optional<Step> begun;
  int attempts = 0;
  Term term;
  Generation generation;
  std::optional<Rung> rung;
  std::vector<RungReason> reasons;     // of the last attempt
  std::vector<AttemptRecord> earlier;  // the attempts before it; the first and the newest ones
  TimePoint fault_at;                  // earliest instant known
  TimePoint detected_at;
  std::optional<TimePoint> parked_at, rebuilt_at, repaired_at, resumed_at;  // the last rank of all
  uint64_t bytes_moved = 0;
  std::vector<Rank> sources;
  std::vector<PhaseSpan> phases;
  std::vector<RankSpan> rank_spans;
  std::vector<Rank> left = {};  // who takes no part any more since then
  std::vector<Rank> came = {};  // who does again
};
// Why the incident was repaired as it was, told in order: what earlier attempts had chosen and what came of it, then the
// rungs of the last attempt.
std::vector<RungReason> ReasonsOf(const IncidentRecord& record);
struct IncidentClosed {
  IncidentRecord record;
};
// Everything a rank reported for a later step is void; the run goes on from here.
struct StepDecided {
  Step step;
};
struct CheckpointReady {
  Step step;
  std::string directory;
};
// A save has ended: what it wrote is visible, and `text` is what its publisher remarked on it, or it failed and `text`
// says why. One that an incident interrupts ends in the save after it.
struct SaveSettled {
  Step step;
  bool saved = false;
  Rank rank;  // who published it, or could not
  std::string text;
};
// An attempt at an in-memory snapshot has ended: it counts, or it does not and `text` says why.
struct SnapshotSettled {
  Step step;
  bool counts = false;
  Rank rank;  // who could not, where it does not count
  std::string text;
  Duration cost{};  // CPU time of the rank with the most, where it counts
};
struct RunEnded {
  int exit_code = 0;
  std::string text;
  Step committed;                        // newest step that the whole run has committed
  std::optional<uint64_t> final_digest;  // success: over every shard's digest, in the order of layouts and ranks
  std::string not_compared = {};         // success: why replicas were not compared at the end; empty: they were
};
// Something was refused or is worth a line; never acted on.
struct Notice {
  Rank rank;
  std::string text;
};
// Something of a rank is not what an undisturbed run would have, told once.
struct InexactNews {
  Rank rank;
  std::string text;
};
// A new process was asked for, and is not to be had after all.
struct ReplaceRefused {
  Rank rank;
  std::string why;
};
// Another number of ranks was asked for, and is not to be had after all.
struct ScaleRefused {
  int ranks = 0;
  std::string why;
};
// A rank could not connect to another one, told once in an incident.
struct RoadClosed {
  Rank from;
  Rank to;
  uint16_t port = 0;
  std::string from_host, to_host;
};
// Other hosts cannot reach the one of these ranks: it is taken for away, whatever it says, and a spare node has them next.
struct NodeCutOff {
  Rank first;
  std::string text;
};
// An incident takes long: told at attempts that lie further and further apart.
struct AttemptsGrow {
  uint64_t incident = 0;
  int attempts = 0;
  Duration since{};
  std::string reason;
};
// The run went on with another crew.
struct CrewChanged {
  std::vector<Rank> ranks;  // all that take part now
  std::vector<Rank> left;   // who did before, and does no more
  Step step;
  std::vector<Rank> came = {};  // who did not before
};
// An even split: the witness's lease is wanted, to have and to hold.
struct AskWitness {};

// Somebody waits for longer than ranks are known to: why, and for whom. Told anew where that changes.
struct HangExplained {
  Blame blame;
};

using ControllerAction =
    std::variant<Send, SpawnProcess, KillProcess, Transition, IncidentClosed, StepDecided, CheckpointReady, RunEnded,
                 Notice, AskWitness, SnapshotSettled, SaveSettled, InexactNews, RoadClosed, NodeCutOff, AttemptsGrow,
                 ReplaceRefused, HangExplained, CrewChanged, ScaleRefused>;

// Exit codes of a run (tools/OPERATIONS.md and --help).
inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitStartup = 3;
inline constexpr int kExitResumable = 75;

}  // namespace kintsugi::core
