// Cluster: a whole virtual run around the real cores. One ControllerCore, an AgentCore per process, virtual time, a
// virtual network that carries the bytes of the real wire format, processes that start and die, trainers that compute,
// collectives, checkpoints, and checkers of DESIGN section 6's promises.
//
// Everything is drawn from the plan's seed: a seed is a replay. The drivers here do what the real drivers do.
// Ownership: processes and connections live as long as the cluster; what refers to them holds plain pointers.
#pragma once

#include <functional>
#include <memory>
#include <set>

#include "runtime/core/election.h"
#include "runtime/sim/election_checker.h"
#include "runtime/sim/end_checker.h"
#include "runtime/sim/link.h"
#include "runtime/sim/state_checker.h"
#include "runtime/sim/table_checker.h"
#include "runtime/sim/world.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi::sim {

struct Launcher;
struct NodeLine;

// How long processes may take to leave once the run has ended (runtime/launcher).
inline constexpr Duration kLeaveLimit = std::chrono::seconds(10);

class Cluster {
 public:
  // `log` and `hook` may be null.
  explicit Cluster(Plan plan, LogFunction log = nullptr, Hook* hook = nullptr);
  ~Cluster();
  Outcome Run();

 private:
  enum class Meeting : uint8_t { kGradients, kGate, kParams, kConnect, kRollback };

  struct Collective {
    std::vector<bool> here;
    std::vector<uint64_t> values;
    std::vector<std::optional<Object>> objects;
    size_t entered = 0;
    uint64_t sum = 0;  // once complete
    bool tainted = false;
    bool complete = false;
  };
  struct Transfer {
    RepairMove move;
    Process* source = nullptr;
    bool done = false;
  };
  struct RepairSession {
    std::map<Rank, Process*> members;
    std::vector<Transfer> transfers;
  };
  struct Fault {
    PlannedFault plan;
    bool fired = false;
    bool armed = true;  // waits for its place in the trainer
  };

  // Loop and time (cluster.cc).
  Outcome Conclude();
  Duration Latency(Rank rank);

  // Controller's driver (controller_driver.cc).
  void Feed(ControllerEvent event);
  void StepController(const ControllerEvent& event);
  void Act(const ControllerAction& action);
  void Kill(const KillProcess& kill);
  void EndStragglers();
  void Answer(const std::vector<StoreTable::Answer>& answers);
  void SendDown(const Header& header, const ControllerMessage& message);
  void AnswerWaitingJoins();
  void AnswerJoin(const Header& header, const JoinReply& reply);
  void OnUp(Link* link, const std::string& frame);
  void OnAgentMessage(const Header& header, const AgentMessage& message);
  void CloseAtController(Link* link, bool told);
  void Tick();

  // Controllers that die or sleep (takeover.cc).
  bool LoseController(bool frozen);
  void TakeOver();
  void TellOfProcesses(int node);
  void Thaw();

  // Launchers and their elections (elections.cc).
  void BeginElections();
  void BeginLauncher(Launcher& l, int node);
  bool Over() const;
  Launcher& LauncherOf(Rank rank);
  void AtLauncher(Launcher& l, Duration delay, Task what);
  core::ElectionCore::Standing StandingOf(const Launcher& l) const;
  void Poll(Launcher& l);
  void PollSeat(Launcher& l, Seat& seat);
  std::string LeadsFrame(const Seat& seat) const;
  void TellLauncher(int from, int to, std::string frame);
  void Hear(Launcher& l, const std::string& frame);
  void OnVoteRequest(Launcher& l, const wire::VoteRequest& request);
  void OnLeads(Launcher& l, Term term, const wire::Leads& leads);
  void Do(Launcher& l, core::ElectionCore::Decision decision);
  void Lead(Launcher& l, const core::ElectionCore::Lead& lead);
  void StepDown(Launcher& l, Term term);
  void LinkTo(Launcher& l, Term term, Seat* seat);
  void Unlink(Launcher& l, const std::string& why);
  void Dial(Launcher& l);
  void TryDial(Launcher& l);
  void Tell(Launcher& l, const wire::NodeMessage& message);
  void TellPages(Launcher& l);
  void OnLineFrame(Launcher& l, NodeLine* line, const std::string& bytes);
  void OnWelcome(Launcher& l);
  void SpawnHere(Launcher& l, Rank rank, Incarnation incarnation);
  void KillHere(Launcher& l, Rank rank, Incarnation incarnation);
  void ReapHere(Process* p, const std::string& cause);
  void EndHere(Launcher& l);

  // Controllers where there are several (seats.cc).
  template <typename What>
  void AtSeat(Seat* seat, What what);
  bool Relay(Link* link, bool up, const std::string& frame);
  void CloseAtSeat(Link* link, bool told);
  void NoteBegun();
  Seat* SeatFor(Process* p);
  void TickSeats();
  bool CutBetween(int from, int to) const;
  bool IsCut(Link* link, bool up);
  void PutLine(NodeLine* line, bool up, std::string frame);
  void ArriveLine(NodeLine* line, bool up, const std::string& frame);
  void CloseLine(NodeLine* line);
  void CloseSeat(Seat& seat);
  void HealNodes();
  void OnLineUp(NodeLine* line, const std::string& bytes);
  bool SendToNode(int node, const wire::NodeOrder& order);
  void SpawnThere(Rank rank, Incarnation incarnation);
  void FoundLives(int node, const wire::NodeHello& hello);
  void ComparedLives(int node, const wire::NodeHello& hello);
  void CheckNodes(Seat& seat);
  // Nodes that have no ranks, and those that take their place (spare_nodes.cc).
  std::optional<Incarnation>& NextOn(int node, Rank rank);
  bool Learn(Launcher& l, core::Placement placement);
  void OnPlacement(Launcher& l, const core::Placement& placement);
  bool SpareHere(const Seat& seat) const;
  void MoveBlocks(Seat& seat);
  void PulseNodes(Seat& seat);
  void EndSeat(Seat& seat);
  // What strikes them (fault_nodes.cc).
  bool StrikeNodes(const PlannedFault& fault);
  bool LoseLauncher(Launcher& l, bool host_gone, bool comes_back);
  void VanishHere(Process* p);
  void RestartLauncher(Launcher& l);
  bool FreezeLauncher(Launcher& l, Duration length);
  bool CutNodes(const PlannedFault& fault);
  // Network (network.cc).
  void SendUp(Process* p, Generation generation, const AgentMessage& message);
  void Put(Link* link, bool up, std::string frame);
  void Arrive(Link* link, bool up, std::string frame);
  void Deliver(Link* link, bool up, std::string frame);
  void Connect(Process* p);
  void TryConnect(Process* p);
  void LoseAtAgent(Link* link);
  void Reset(Link* link, Duration agent_after, Duration controller_after);
  void Cut(Rank rank, bool up, bool down, Duration length);
  void Heal(Rank rank, bool up, bool down);
  Road& RoadOf(Rank rank) { return roads_[static_cast<size_t>(rank.value())]; }

  // Processes (launcher.cc).
  void Spawn(Rank rank, Incarnation incarnation);
  void StartProcess(Rank rank, Incarnation incarnation, std::optional<int> node = std::nullopt);
  void Die(Process* p, const std::string& cause);
  void Vanish(Process* p);
  void Reap(Process* p, const std::string& cause);
  void Beat(Process* p);
  Progress PlaceOf(Process* p) const;
  void Freeze(Process* p, std::optional<Duration> length);
  // Spares (spares.cc).
  void BeginSpares();
  void StartSpare(int node);
  bool TakeSpare(Rank rank);
  void TellSpares(int node);
  // Held memory (adopt.cc).
  void Mark(Process* p, core::StateMark mark);
  void Hold(Process* p, const std::string& cause);
  wire::NodeHeld HeldOf(Rank rank) const;
  void TakeHeld(const wire::NodeHeld& told);
  bool Adopt(Process* p);

  // Agent's driver (agent_driver.cc).
  void StepAgent(Process* p, AgentEvent event);
  void ActAgent(Process* p, const AgentAction& action);
  void OnDown(Process* p, const std::string& frame);
  void OnJoinReply(Process* p, const Header& header, const JoinReply& reply);
  void LockGate(Process* p);
  void Interrupt_(Process* p, const StopOrder& order);
  void TakeRelease(Process* p);

  // Trainer (trainer.cc).
  void Go(Process* p, TrainerAt at);
  void Park(Process* p, TrainerParked::Outcome outcome, FaultReport fault = {});
  void BeginStep(Process* p, uint64_t step);
  void Forward(Process* p, uint64_t step);
  void AfterForward(Process* p, uint64_t step);
  void BeginUpdate(Process* p);
  void PassGate(Process* p);
  void AwaitVerdict(Process* p);
  void Update(Process* p);
  void UpdateNext(Process* p);
  void TearUpdate(Process* p, FaultReport fault);

  // Collectives (collectives.cc).
  void Enter(Process* p, Meeting kind, uint64_t step, uint64_t value, std::optional<Object> object = std::nullopt);
  void Leave(Process* p, const MeetingKey& key);
  void Fail(Process* p);
  void BreakGroup(Generation generation);

  // Handlers (handlers.cc, repair.cc, saves.cc).
  void StartOrder(Process* p);
  void RunHandler(Process* p);
  void Finish(Process* p, PhaseDone done);
  void Cancel(Process* p);
  void Rebuild(Process* p);
  void OnStoreReply(Process* p, const StoreReply& reply);
  void Verify(Process* p);
  void Rollback(Process* p);
  void Repair(Process* p);
  void Reload(Process* p);
  void PushTransfers(Generation generation);
  void SendChunk(Generation generation, size_t i, size_t chunk);
  void EndTransfer(Process* to, Transfer& transfer);
  void LeaveSession(Process* p);
  void LeaveTransfer(Process* p, RepairSession& session, Transfer& transfer);
  void Save(Process* p);
  void Rename(Process* p);

  // In-memory snapshots (snapshots.cc).
  void ArmSnapshot(Process* p, const core::ArmSnapshot& arm);
  void TellOfSnapshot(Process* p, Generation generation, SnapshotReport report);
  void AbortSnapshot(Process* p);
  bool StillAt(Process* p, uint64_t step) const;
  void TakeSnapshot(Process* p);
  using Arm = std::shared_ptr<const core::ArmSnapshot>;
  void CopyPiece(Process* p, const Arm& arm, size_t number, uint64_t attempt, Duration piece);
  SnapshotReport ReportOn(Rank owner, const HeldSnapshot& held) const;
  void SendSnapshot(Process* p, const Arm& arm, const HeldSnapshot& snapshot);
  const HeldSnapshot* FindSnapshot(Process* p, Rank owner, uint64_t step) const;
  void ReloadFromMemory(Process* p);
  void TakeObjects(Process* p, const HeldSnapshot& held, int layout);

  // Faults (faults.cc, fault_network.cc).
  void OnPhase(Phase phase);
  void OnTrainerAt(Process* p);
  void Strike(Fault& fault);
  bool StrikeProcess(const PlannedFault& fault, Process* p);
  bool StrikeTrainer(const PlannedFault& fault, Process* p);
  bool StrikeReplacement(const PlannedFault& fault, Process* p);
  bool StrikeLink(const PlannedFault& fault, Process* p);
  bool StrikeSource();
  bool StrikeSilently(Process* p);
  // Bits that flip between steps (rot.cc).
  bool FlipState(Process* p);
  void LoseRot(Process* p);
  bool IsRotten(Rank rank) const;
  void TakeBackFlips();
  bool SendBadFrame(Process* p, int kind);
  bool LoseNode(int rank);
  bool LoseGroup(int rank);
  void Damage(Process* p, bool low);
  bool TakeDamage(Process* p);
  bool Hang(const PlannedFault& fault, Process* p);

  World world_;
  StateChecker state_checker_;
  TableChecker table_checker_;
  ElectionChecker election_checker_;
  EndChecker end_checker_;
  std::unique_ptr<ControllerCore> stale_;             // was replaced while it slept
  std::vector<std::unique_ptr<Launcher>> launchers_;  // by node; none: one controller, in a place of its own
  std::vector<std::unique_ptr<NodeLine>> lines_;
  Seat* stepped_ = nullptr;                       // the one that is stepped
  std::map<std::pair<int, int>, int> node_cuts_;  // from, to
  std::vector<std::unique_ptr<Link>> all_links_;
  std::vector<Road> roads_;
  std::map<MeetingKey, Collective> collectives_;
  std::set<Generation> broken_;
  std::map<Generation, RepairSession> repairs_;
  std::vector<int> spares_;                       // that wait, by node; empty before the run first runs
  std::vector<std::optional<Incarnation>> next_;  // to be started once the one before is reaped
  std::map<std::pair<int, int>, std::optional<Incarnation>> next_on_;  // the same, by node and rank
  uint64_t next_request_ = 1;
  int flips_left_ = 0;
  std::vector<Fault> faults_;
  std::map<int, int> bad_replacements_, slow_replacements_, fast_replacements_;
  std::map<Phase, int> entered_;
};

}  // namespace kintsugi::sim
