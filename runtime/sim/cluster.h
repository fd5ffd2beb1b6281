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
#include "runtime/sim/agents.h"
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

class Cluster final : ControllerEnds, ControllerInbox, Parent, Directory, TrainerWatch {
 public:
  // `log` and `hook` may be null.
  explicit Cluster(Plan plan, LogFunction log = nullptr, Hook* hook = nullptr);
  ~Cluster();
  Outcome Run();

 private:
  struct Fault {
    PlannedFault plan;
    bool fired = false;
    bool armed = true;  // waits for its place in the trainer
  };

  // Loop and time (cluster.cc).
  Outcome Conclude();

  // Controller's driver (controller_driver.cc).
  void Feed(ControllerEvent event) override;
  void StepController(const ControllerEvent& event);
  void Act(const ControllerAction& action);
  void Kill(const KillProcess& kill);
  void EndStragglers();
  void Answer(const std::vector<StoreTable::Answer>& answers);
  void SendDown(const Header& header, const ControllerMessage& message);
  void AnswerWaitingJoins();
  void AnswerJoin(const Header& header, const JoinReply& reply);
  void OnFrame(Link* link, const std::string& bytes) override;
  void OnAgentMessage(const Header& header, const AgentMessage& message);
  void OnLost(Link* link, bool told) override;
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
  bool Relay(Link* link, bool up, const std::string& frame) override;
  void CloseAtSeat(Link* link, bool told);
  void NoteBegun();
  Directory::Answer ControllerOf(const Process* p) override;
  void TickSeats();
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
  void RestartLauncher(Launcher& l);
  bool FreezeLauncher(Launcher& l, Duration length);
  bool CutNodes(const PlannedFault& fault);
  // Processes (launcher.cc).
  void Spawn(Rank rank, Incarnation incarnation);
  void StartProcess(Rank rank, Incarnation incarnation);
  void OnBooted(Process* p) override;
  void OnExited(Process* p, const std::string& cause) override;
  void Beat(Process* p);
  Progress PlaceOf(Process* p) const;
  void TakeHeld(const wire::NodeHeld& told);

  // Faults (faults.cc, fault_network.cc).
  void OnPhase(Phase phase);
  void OnTrainerAt(Process* p) override;
  void Strike(Fault& fault);
  bool StrikeProcess(const PlannedFault& fault, Process* p);
  bool StrikeTrainer(const PlannedFault& fault, Process* p);
  bool StrikeReplacement(const PlannedFault& fault, Process* p);
  bool StrikeLink(const PlannedFault& fault, Process* p);
  bool StrikeSource();
  bool StrikeSilently(Process* p);
  void TakeBackFlips();
  bool SendBadFrame(Process* p, int kind);
  bool LoseNode(int rank);
  bool LoseGroup(int rank);
  void Damage(Process* p, bool low);
  bool Hang(const PlannedFault& fault, Process* p);

  World world_;
  StateChecker state_checker_;
  TableChecker table_checker_;
  ElectionChecker election_checker_;
  EndChecker end_checker_;
  Network network_;
  Rot rot_;
  HeldMemory held_;
  Collectives collectives_;
  Snapshots snapshots_;
  Trainers trainers_;
  Transfers transfers_;
  Checkpoints checkpoints_;
  Handlers handlers_;
  Spares spares_;
  Processes processes_;
  Agents agents_;
  std::unique_ptr<ControllerCore> stale_;             // was replaced while it slept
  std::vector<std::unique_ptr<Launcher>> launchers_;  // by node; none: one controller, in a place of its own
  std::vector<std::unique_ptr<NodeLine>> lines_;
  Seat* stepped_ = nullptr;                                            // the one that is stepped
  std::vector<std::optional<Incarnation>> next_;                       // to be started once the one before is reaped
  std::map<std::pair<int, int>, std::optional<Incarnation>> next_on_;  // the same, by node and rank
  std::vector<Fault> faults_;
  std::map<Phase, int> entered_;
};

}  // namespace kintsugi::sim
