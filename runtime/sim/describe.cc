#include "runtime/sim/describe.h"

#include "runtime/base/overloaded.h"
#include "runtime/core/ladder.h"

namespace kintsugi::sim {

using namespace core;

namespace {

std::string Who(const Header& header) {
  return "rank " + header.rank.ToString() + " inc " + header.incarnation.ToString() + " gen " +
         header.generation.ToString() + ": ";
}

std::string Gate(GateState state, Step step, bool valid) {
  return std::string(GateStateName(state)) + "(" + step.ToString() + ")" + (valid ? "" : " no offer");
}

}  // namespace

std::string Describe(const Header& header, const AgentMessage& message) {
  return Who(header) +
         std::visit(
             Overloaded{
                 [](const JoinRequest& m) { return "join pid " + std::to_string(m.pid); },
                 [](const Ready&) { return std::string("ready"); },
                 [](const Beat& m) { return "beat " + std::to_string(m.count); },
                 [](const FaultReport& m) { return "fault " + std::string(FaultKindName(m.kind)) + ": " + m.text; },
                 [](const LockReply& m) { return "locked at " + Gate(m.state, m.step, m.valid); },
                 [](const Parked& m) { return "parked at " + Gate(m.state, m.step, m.valid); },
                 [](const PhaseDone& m) {
                   return std::string(PhaseName(m.phase)) + " done: " + std::string(StatusCodeName(m.code)) +
                          (m.text.empty() ? "" : ", " + m.text);
                 },
                 [](const Resumed&) { return std::string("resumed"); },
                 [](const Finished& m) { return "finished " + m.step.ToString(); },
                 [](const GateEntered& m) { return "at gate " + m.step.ToString(); },
                 [](const SavePoint& m) { return "at save point " + m.step.ToString(); },
                 [](const PauseAck& m) { return "pause stored, begun " + m.begun.ToString(); },
                 [](const StoreSet& m) { return "store set " + m.key; },
                 [](const StoreGet& m) { return "store get " + m.key; },
                 [](const Published& m) { return "published " + m.step.ToString(); },
                 [](const SnapshotReport& m) {
                   return "snapshot " + m.step.ToString() + " of rank " + m.owner.ToString() + ": " +
                          std::string(StatusCodeName(m.code)) + (m.text.empty() ? "" : ", " + m.text);
                 },
             },
             message);
}

std::string Describe(const Header& header, const ControllerMessage& message) {
  return Who(header) +
         std::visit(Overloaded{
                        [](const JoinReply& m) {
                          return m.accepted ? std::string(m.replacement ? "joined as a replacement" : "joined")
                                            : "refused: " + m.text;
                        },
                        [](const LockOrder&) { return std::string("lock"); },
                        [](const StopOrder& m) { return "stop at " + (m.step_exists ? m.step.ToString() : "no step"); },
                        [](const PhaseOrder& m) {
                          return std::string(PhaseName(m.phase)) + " step " + m.step.ToString() + " rung " +
                                 std::string(RungName(m.rung)) + ", " + std::to_string(m.moves.size()) + " moves";
                        },
                        [](const ResumeOrder& m) { return "resume from " + m.step.ToString(); },
                        [](const ContinueOrder&) { return std::string("continue"); },
                        [](const PauseAt& m) { return "pause at " + m.step.ToString(); },
                        [](const GateOpen& m) { return "gate " + m.step.ToString() + " is open"; },
                        [](const StoreReply& m) {
                          return "store answer " + std::to_string(m.request) + ": " +
                                 std::string(StatusCodeName(m.code));
                        },
                        [](const InjectOrder& m) { return "inject " + m.injection; },
                        [](const SnapshotOrder& m) {
                          return "snapshot at " + m.step.ToString() + ", keep " + m.keep.ToString() + ", partner " +
                                 m.partner.ToString();
                        },
                        [](const EndOrder& m) { return "end with " + std::to_string(m.exit_code) + ": " + m.text; },
                    },
                    message);
}

}  // namespace kintsugi::sim
