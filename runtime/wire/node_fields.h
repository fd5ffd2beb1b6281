// The list: every field of every message between launchers and the controller, named once (field.h says how to read it).
//
// Numbers are never reused: node.proto, which is written from this, remembers those that are gone.
#pragma once

#include <string>
#include <vector>

#include "runtime/wire/fields.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi::wire {

// ---- what messages are made of -------------------------------------------------------------------------------------

inline constexpr uint64_t kSparesMax = 1 << 16;
inline constexpr size_t kMovedMax = 1 << 17;
using Spares = Scalar<int, Type::kUint32, "spares", 0, kSparesMax>;
using CurvePlace = Scalar<uint64_t, Type::kUint64, "curve", 0, core::LedgerTotals::kCurveMax>;
using CurveEvery = Scalar<uint64_t, Type::kUint64, "curve every", 1, kAnyUint64>;
using Block = Scalar<int, Type::kInt32, "block", 0, kAnyInt32>;

KINTSUGI_FIELDS(core::TieOrder, (number, 4), (rule, 5))
KINTSUGI_FIELDS(TimeAccount, (total, 8), (starting, 9), (down, 10), (redone, 11), (saving, 12), (paused, 13))
KINTSUGI_FIELDS(RunSoFar, (incidents, 6), (pause_asked, 7), (time, 0, Inline), (saves_made, 15), (saves_failed, 16),
                (inexact, 17), (ranks_wanted, 18, NotNegative), (crew, 19))
KINTSUGI_FIELDS(core::SampleSum, (count, 5), (digest, 6, Fixed))
KINTSUGI_FIELDS(core::LedgerTotals::Note, (step, 1), (steps, 2), (samples, 3), (digest, 4, Fixed), (reports, 5),
                (last_loss, 6))
KINTSUGI_FIELDS(core::LedgerTotals, (step, 1), (steps, 2), (samples, 3), (digest, 4, Fixed), (reports, 5),
                (last_loss, 6), (reporters, 7), (curve_every, 8, CurveEvery), (curve, 10), (notes, 11))
KINTSUGI_FIELDS(WorkerLife, (rank, 1), (incarnation, 2), (armed, 3))
KINTSUGI_FIELDS(Page, (rank, 1), (incarnation, 2), (beat, 3), (gate_word, 4, Fixed), (progress, 5, Fixed),
                (progress_age, 6))
KINTSUGI_FIELDS(KeptIncident, (id, 1), (record, 2), (injection, 3))
KINTSUGI_FIELDS(KeptLife, (rank, 1), (incarnation, 2), (begin, 3, Limit), (end, 4, Limit), (over, 5), (cause, 6))
KINTSUGI_FIELDS(KeptStep, (rank, 1), (step, 2), (begin, 3, Limit), (end, 4, Limit))
KINTSUGI_FIELDS(KeptWorld, (at, 1, Limit), (step, 2), (ranks, 3, NotNegative), (left, 4), (came, 5), (incident, 6))
KINTSUGI_FIELDS(NodePlace, (node, 1, NotNegative), (address, 2), (port, 3))

// Where the ranks live, as plain data.
struct MovedBlock {
  int block = 0;
  int node = 0;
  Generation since;
};
struct PlacementParts {
  uint64_t term = 0;
  uint64_t number = 0;
  std::vector<MovedBlock> moved;
};
KINTSUGI_FIELDS(MovedBlock, (block, 1, Block), (node, 2, NotNegative), (since, 3))
KINTSUGI_FIELDS(PlacementParts, (term, 1), (number, 2), (moved, 3))
template <>
struct Made<core::Placement> {
  using Parts = PlacementParts;
  static Parts PartsOf(const core::Placement& placement);
  static Result<core::Placement> Make(const Parts& parts);
};

// What every frame between launchers has.
struct NodeSeal {
  std::string job;
  Term term;
};
KINTSUGI_FIELDS(NodeSeal, (job, 1), (term, 0, Inline))

// ---- node -> controller --------------------------------------------------------------------------------------------

KINTSUGI_MESSAGE(10, "hello", NodeHello, (node_rank, 1, NotNegative), (nodes, 2, Positive), (local_ranks, 3, Positive),
                 (address, 4), (lives, 5), (port, 6), (witness, 7), (controllers, 8, NotNegative), (master_port, 9),
                 (launcher, 10, Fixed), (held, 11), (host, 12), (version, 13), (alike, 14), (own, 15), (newcomer, 16))
KINTSUGI_BARE(11, "starting", WorkerStarting, (life, 11))
KINTSUGI_MESSAGE(12, "pages", Pages, (pages, 1))
KINTSUGI_MESSAGE(13, "report", WorkerReport, (rank, 1), (step, 2), (loss, 3), (samples, 0, Inline))
KINTSUGI_MESSAGE(14, "fired", InjectionFired, (spec, 1), (age, 2))
KINTSUGI_MESSAGE(15, "exited", WorkerExited, (rank, 1), (incarnation, 2), (cause, 3), (age, 4),
                 (since_age, 5, FlaggedAt<6>), (left, 7), (code, 8), (not_struck, 9))
KINTSUGI_MESSAGE(16, "from_agent", FromAgentChannel, (channel, 1), (frame, 2))
KINTSUGI_BARE(17, "agent_closed", AgentChannelClosed, (channel, 17))
KINTSUGI_MESSAGE(18, "stop", NodeStop)
KINTSUGI_MESSAGE(19, "inject", NodeInject, (rank, 1), (injection, 2))
KINTSUGI_MESSAGE(20, "vote_request", VoteRequest, (node, 1, NotNegative), (term, 2), (placement, 3))
KINTSUGI_MESSAGE(21, "vote", Vote, (node, 1, NotNegative), (term, 2), (granted, 3), (live, 4), (ended, 5),
                 (placement, 6), (newcomer, 7))
KINTSUGI_BARE(22, "spares", NodeSpares, (waiting, 22, Spares))
KINTSUGI_BARE(23, "tie_rule_kept", TieRuleKept, (number, 23))
KINTSUGI_MESSAGE(24, "held", NodeHeld, (rank, 1), (held, 2, Flagged), (ready, 6))
KINTSUGI_MESSAGE(25, "asks", NodeAsks, (id, 1), (request, 2))
KINTSUGI_MESSAGE(26, "answers", NodeAnswers, (id, 1), (answer, 2))

// ---- controller -> node --------------------------------------------------------------------------------------------

KINTSUGI_MESSAGE(40, "welcome", NodeWelcome, (accepted, 1), (text, 2), (master_address, 3), (master_port, 4),
                 (beat, 5, AnyDuration), (policy, 6), (run, 7), (placement, 8), (page, 9))
KINTSUGI_MESSAGE(41, "spawn", SpawnWorker, (rank, 1), (incarnation, 2))
KINTSUGI_MESSAGE(42, "kill", KillWorker, (rank, 1), (incarnation, 2), (reason, 3))
KINTSUGI_MESSAGE(43, "to_agent", ToAgentChannel, (channel, 1), (frame, 2))
KINTSUGI_BARE(44, "close_agent", CloseAgentChannel, (channel, 44))
KINTSUGI_MESSAGE(45, "end", NodeEnd, (exit_code, 1), (text, 2), (asked, 3), (awaits_ends, 4))
KINTSUGI_MESSAGE(46, "pulse", NodePulse, (began, 1), (checkpoints, 2), (generation, 3), (tie, 0, Inline),
                 (so_far, 0, Inline), (started, 14))
KINTSUGI_MESSAGE(47, "places", NodePlaces, (places, 1))
KINTSUGI_BARE(49, "keep_report", KeepReport, (report, 49))
KINTSUGI_MESSAGE(50, "keep_totals", KeepTotals, (totals, 0, Inline), (curve_from, 9, CurvePlace))
KINTSUGI_MESSAGE(51, "ask_node", AskNode, (id, 1), (request, 2))
KINTSUGI_MESSAGE(52, "answer_node", AnswerNode, (id, 1), (answer, 2))
KINTSUGI_MESSAGE(53, "news", NodeNews, (level, 1), (line, 2))
KINTSUGI_BARE(54, "placement", NodeBlocks, (placement, 54))
KINTSUGI_MESSAGE(55, "leads", Leads, (controller, 1), (part, 2), (placement, 3))
KINTSUGI_MESSAGE(56, "keep_incidents", KeepIncidents, (incidents, 1), (all, 2))
KINTSUGI_MESSAGE(57, "keep_spans", KeepSpans, (lives, 1), (steps, 2), (worlds, 4), (all, 3))

// ---- what no field says alone --------------------------------------------------------------------------------------

template <>
struct Whole<NodeHello> {
  static Status Check(const NodeHello& hello);
};
template <>
struct Whole<NodeWelcome> {
  static Status Check(const NodeWelcome& welcome);
};
template <>
struct Whole<KeepTotals> {
  static Status Check(const KeepTotals& keep);
};
template <>
struct Whole<KeepIncidents> {
  static Status Check(const KeepIncidents& keep);
};
template <>
struct Whole<KeepSpans> {
  static Status Check(const KeepSpans& keep);
};

}  // namespace kintsugi::wire
