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

#include "callbacks/state/receive_ledger.h"
#include "callbacks/state/snapshot_slots.h"
#include "runtime/core/agent_core.h"
#include "runtime/core/controller_core.h"
#include "runtime/core/election.h"
#include "runtime/core/store_table.h"
#include "runtime/sim/hook.h"
#include "runtime/sim/outcome.h"
#include "runtime/sim/plan.h"
#include "runtime/sim/scheduler.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi::sim {

// Takes one line of the event log.
using LogFunction = std::function<void(const std::string&)>;

// How long processes may take to leave once the run has ended (runtime/launcher).
inline constexpr Duration kLeaveLimit = std::chrono::seconds(10);

class Cluster {
 public:
  // `log` and `hook` may be null.
  explicit Cluster(Plan plan, LogFunction log = nullptr, Hook* hook = nullptr);
  ~Cluster();
  Outcome Run();

 private:
  struct Launcher;
  struct NodeLine;
  struct Seat;
  struct Process;
  struct Link;
  using ProcessPtr = Process*;
  using LinkPtr = Link*;

  // One direction of a connection: ordered, and whole until it is lost.
  struct Direction {
    bool open = true;               // bytes still reach the other end
    TimePoint last;                 // arrival of the newest frame
    size_t frames = 0, bytes = 0;   // on their way
    std::vector<std::string> held;  // arrived at a cut; an empty frame is the end of the connection
  };
  struct Link {
    ProcessPtr process = nullptr;
    Rank rank;
    Incarnation incarnation;  // of the life that it speaks for, once joined
    bool joined = false;
    bool controller_open = true;  // the controller's end
    Seat* seat = nullptr;         // whose end that is, where there are several
    Direction up, down;
  };
  // The road between a rank's host and the controller, for all its connections.
  struct Road {
    int cuts_up = 0, cuts_down = 0;
    Duration extra{};
    bool whole() const { return cuts_up == 0 && cuts_down == 0; }
  };

  struct HeldSnapshot {
    uint64_t step = 0;
    RankState state;
    std::map<Rank, Object> objects;  // of the owner's replica groups
  };
  struct HeldSnapshots {
    SnapshotSlots slots;
    uint64_t attempt = 0;  // what was begun in an older one is void
    std::array<HeldSnapshot, SnapshotSlots::kPlaces> places;
  };

  struct Process {
    Rank rank;
    Incarnation incarnation;
    int node = 0;
    uint64_t pid = 0;
    bool alive = true, frozen = false, doomed = false;
    std::vector<Task> deferred;            // what became due while it was frozen
    LinkPtr link = nullptr;                // its own end
    std::optional<TimePoint> alone_since;  // without a connection
    std::unique_ptr<AgentCore> core;
    Generation newest_heard;
    Term newest_term;
    bool reaped = false;  // its launcher has seen its end
    uint64_t beats = 0;
    // Trainer.
    TrainerAt at = TrainerAt::kBoot;
    uint64_t activity = 0;  // a timer of an older activity is void
    uint64_t word = 0;
    uint64_t begun = 0;  // the step being computed
    uint64_t pause = 0;
    uint64_t released_at = 0;
    bool resumed_told = true;
    std::optional<ReleaseTrainer> release;
    std::optional<StopOrder> verdict;
    RankState state;
    bool damaged = false;     // by a memory fault, until repaired
    bool flipped = false;     // by a bit that nobody saw, until VERIFY has
    bool spoiled = false;     // by what it received from damaged memory, until VERIFY has
    bool rotten = false;      // a bit of its state flipped between steps
    bool tainted = false;     // what it holds was computed with that
    uint64_t silent_bit = 0;  // the one that flipped in an untouched copy
    int slow = 1;             // its steps take so many times as long
    uint64_t gradient = 0;
    size_t piece = 0;
    ObjectHistory objects;                   // own mirrored object
    std::map<Rank, ObjectHistory> mirrored;  // partners'
    bool throw_next = false, throw_in_update = false;
    bool hung = false, hung_for_good = false;
    int failing_handlers = 0;
    int nonsense_handlers = 0;
    int hanging_handlers = 0;  // the last of four does not even hear its cancel
    bool hangs = false, deaf = false;
    // Handler and collectives.
    std::optional<RunOnTrainer> order;  // not yet taken by the trainer's thread
    std::optional<RunOnTrainer> running;
    Generation group;  // its communicator
    struct Key {
      Generation generation;
      uint64_t step = 0;
      uint8_t kind = 0;
      auto operator<=>(const Key&) const = default;
    };
    std::optional<Key> blocked_in;  // collective
    std::map<uint64_t, Rank> gets;  // outstanding reads of the store
    core::StateMark mark = core::StateMark::kNotYet;
    bool adopted = false;
    // What a repair has brought so far: outlives the generation, not the step.
    std::map<int, ReceiveLedger> received;  // chunks, by layout
    bool received_from_snapshot = false;
    // In-memory snapshots.
    std::map<Rank, HeldSnapshots> snapshots;    // by owner
    std::optional<core::ArmSnapshot> snapshot;  // ordered, its boundary still to come
    uint64_t snapshot_epoch = 0;                // what was begun in an older one is void
  };
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
    ProcessPtr source = nullptr;
    bool done = false;
  };
  struct RepairSession {
    std::map<Rank, ProcessPtr> members;
    std::vector<Transfer> transfers;
  };
  struct Checkpoint {
    std::map<std::pair<int, Rank>, Tensors> shards;  // by layout and first holder
    std::map<Rank, Object> objects;
  };
  // What a launcher still has of a rank's process that ended.
  struct Left {
    std::optional<core::HeldState> held;
    RankState state;
    ObjectHistory objects;
    std::map<Rank, ObjectHistory> mirrored;
    bool damaged = false;
    bool rotten = false, tainted = false;
    uint64_t silent_bit = 0;
  };
  struct Fault {
    PlannedFault plan;
    bool fired = false;
    bool armed = true;  // waits for its place in the trainer
  };

  // Loop and time (cluster.cc).
  TimePoint Now() const { return scheduler_.now(); }
  void In(Duration delay, Task what) { scheduler_.At(Now() + delay, std::move(what)); }
  // Of a process that lives; a frozen one does it when it thaws.
  template <typename What>
  void For(ProcessPtr p, Duration delay, What what) {
    In(delay, [p, what = std::move(what)]() mutable {
      if (!p->alive) return;
      if (p->frozen) return p->deferred.push_back(Task(std::move(what)));
      what();
    });
  }
  // Of a trainer's thread that is still at what it was at.
  template <typename What>
  void Trainer(ProcessPtr p, Duration delay, What what) {
    For(p, delay, [p, activity = p->activity, what = std::move(what)]() mutable {
      if (p->activity == activity) what();
    });
  }
  Duration Between(int64_t low_us, int64_t high_us);
  Duration Share(int low_percent, int high_percent) const;  // of a step, drawn
  Duration Latency(Rank rank);
  void Log(const std::string& text);
  void Break(Promise promise, const std::string& text);

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
  void OnUp(LinkPtr link, const std::string& frame);
  void OnAgentMessage(const Header& header, const AgentMessage& message);
  void CloseAtController(LinkPtr link, bool told);
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
  void ReapHere(ProcessPtr p, const std::string& cause);
  void EndHere(Launcher& l);

  // Controllers where there are several (seats.cc).
  void Sit(Seat* seat);
  template <typename What>
  void AtSeat(Seat* seat, What what);
  bool Relay(LinkPtr link, bool up, const std::string& frame);
  void CloseAtSeat(LinkPtr link, bool told);
  void NoteBegun();
  Seat* SeatFor(ProcessPtr p);
  void TickSeats();
  bool CutBetween(int from, int to) const;
  bool IsCut(LinkPtr link, bool up);
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
  int Hosts() const { return plan_.nodes + plan_.spare_nodes; }
  int LocalRanks() const { return plan_.policy.world_size / plan_.nodes; }
  ProcessPtr NewestOn(int node, Rank rank) const;
  std::vector<ProcessPtr> On(int node) const;
  std::optional<Incarnation>& NextOn(int node, Rank rank);
  int SeatedNodeOf(Rank rank) const;
  bool Learn(Launcher& l, core::Placement placement);
  void OnPlacement(Launcher& l, const core::Placement& placement);
  bool SpareHere(const Seat& seat) const;
  void MoveBlocks(Seat& seat);
  int HolderOf(int rank) const;
  void PulseNodes(Seat& seat);
  void EndSeat(Seat& seat);
  // What strikes them (fault_nodes.cc).
  bool StrikeNodes(const PlannedFault& fault);
  void NoteAllDisturbed();
  bool LoseLauncher(Launcher& l, bool host_gone, bool comes_back);
  void VanishHere(ProcessPtr p);
  void RestartLauncher(Launcher& l);
  bool FreezeLauncher(Launcher& l, Duration length);
  bool CutNodes(const PlannedFault& fault);
  // What they promise (check_elections.cc).
  void CheckPromise(Launcher& l, int candidate, uint64_t term);
  void CheckLead(const Launcher& l, const core::ElectionCore::Lead& lead);
  void CheckTermObeyed(const Launcher& l, Term term);
  void CheckActs(const Send& send);
  std::map<int, bool> ConsentTo(Generation generation) const;
  int WeightOf(const std::map<int, bool>& ranks) const;
  void CheckEndElected();

  // Network (network.cc).
  void SendUp(ProcessPtr p, Generation generation, const AgentMessage& message);
  void Put(LinkPtr link, bool up, std::string frame);
  void Arrive(LinkPtr link, bool up, std::string frame);
  void Deliver(LinkPtr link, bool up, std::string frame);
  void Connect(ProcessPtr p);
  void TryConnect(ProcessPtr p);
  void LoseAtAgent(LinkPtr link);
  void Reset(LinkPtr link, Duration agent_after, Duration controller_after);
  void Cut(Rank rank, bool up, bool down, Duration length);
  void Heal(Rank rank, bool up, bool down);
  Road& RoadOf(Rank rank) { return roads_[static_cast<size_t>(rank.value())]; }

  // Processes (launcher.cc).
  void Spawn(Rank rank, Incarnation incarnation);
  void StartProcess(Rank rank, Incarnation incarnation, std::optional<int> node = std::nullopt);
  void Die(ProcessPtr p, const std::string& cause);
  void Vanish(ProcessPtr p);
  void Reap(ProcessPtr p, const std::string& cause);
  void Beat(ProcessPtr p);
  Progress PlaceOf(ProcessPtr p) const;
  void Freeze(ProcessPtr p, std::optional<Duration> length);
  // Spares (spares.cc).
  void BeginSpares();
  void StartSpare(int node);
  bool TakeSpare(Rank rank);
  void TellSpares(int node);
  // Held memory (adopt.cc).
  void Mark(ProcessPtr p, core::StateMark mark);
  void Hold(ProcessPtr p, const std::string& cause);
  wire::NodeHeld HeldOf(Rank rank) const;
  void TakeHeld(const wire::NodeHeld& told);
  bool Adopt(ProcessPtr p);
  ProcessPtr Newest(Rank rank) const { return processes_[static_cast<size_t>(rank.value())]; }

  // Agent's driver (agent_driver.cc).
  void StepAgent(ProcessPtr p, AgentEvent event);
  void ActAgent(ProcessPtr p, const AgentAction& action);
  void OnDown(ProcessPtr p, const std::string& frame);
  void OnJoinReply(ProcessPtr p, const Header& header, const JoinReply& reply);
  void LockGate(ProcessPtr p);
  void Interrupt_(ProcessPtr p, const StopOrder& order);
  void TakeRelease(ProcessPtr p);

  // Trainer (trainer.cc).
  void Go(ProcessPtr p, TrainerAt at);
  void Park(ProcessPtr p, TrainerParked::Outcome outcome, FaultReport fault = {});
  void BeginStep(ProcessPtr p, uint64_t step);
  void Forward(ProcessPtr p, uint64_t step);
  void AfterForward(ProcessPtr p, uint64_t step);
  void BeginUpdate(ProcessPtr p);
  void PassGate(ProcessPtr p);
  void AwaitVerdict(ProcessPtr p);
  void Update(ProcessPtr p);
  void UpdateNext(ProcessPtr p);
  void TearUpdate(ProcessPtr p, FaultReport fault);
  void SetWord(ProcessPtr p, GateState state, uint64_t step);
  GateWord Word(ProcessPtr p) const { return GateWord::Unpack(p->word); }

  // Collectives (collectives.cc).
  void Enter(ProcessPtr p, Meeting kind, uint64_t step, uint64_t value, std::optional<Object> object = std::nullopt);
  void Leave(ProcessPtr p, const Process::Key& key);
  void Fail(ProcessPtr p);
  void BreakGroup(Generation generation);

  // Handlers (handlers.cc, repair.cc, saves.cc).
  void StartOrder(ProcessPtr p);
  void RunHandler(ProcessPtr p);
  void Finish(ProcessPtr p, PhaseDone done);
  void Cancel(ProcessPtr p);
  void Rebuild(ProcessPtr p);
  void OnStoreReply(ProcessPtr p, const StoreReply& reply);
  void Verify(ProcessPtr p);
  void Rollback(ProcessPtr p);
  void Repair(ProcessPtr p);
  void Reload(ProcessPtr p);
  void PushTransfers(Generation generation);
  void SendChunk(Generation generation, size_t i, size_t chunk);
  void EndTransfer(ProcessPtr to, Transfer& transfer);
  void LeaveSession(ProcessPtr p);
  void LeaveTransfer(ProcessPtr p, RepairSession& session, Transfer& transfer);
  void Save(ProcessPtr p);
  void Rename(ProcessPtr p);
  const Object* ObjectOf(ProcessPtr p, Rank rank, uint64_t step) const;

  // In-memory snapshots (snapshots.cc).
  void ArmSnapshot(ProcessPtr p, const core::ArmSnapshot& arm);
  void TellOfSnapshot(ProcessPtr p, Generation generation, SnapshotReport report);
  void AbortSnapshot(ProcessPtr p);
  bool StillAt(ProcessPtr p, uint64_t step) const;
  void TakeSnapshot(ProcessPtr p);
  using Arm = std::shared_ptr<const core::ArmSnapshot>;
  void CopyPiece(ProcessPtr p, const Arm& arm, size_t number, uint64_t attempt, Duration piece);
  SnapshotReport ReportOn(Rank owner, const HeldSnapshot& held) const;
  void SendSnapshot(ProcessPtr p, const Arm& arm, const HeldSnapshot& snapshot);
  const HeldSnapshot* FindSnapshot(ProcessPtr p, Rank owner, uint64_t step) const;
  bool CheckSnapshot(ProcessPtr p, Rank owner, uint64_t step);
  void ReloadFromMemory(ProcessPtr p);
  void TakeObjects(ProcessPtr p, const HeldSnapshot& held, int layout);

  // Faults (faults.cc, fault_network.cc).
  void OnPhase(Phase phase);
  void OnTrainerAt(ProcessPtr p);
  void Strike(Fault& fault);
  bool StrikeProcess(const PlannedFault& fault, ProcessPtr p);
  bool StrikeTrainer(const PlannedFault& fault, ProcessPtr p);
  bool StrikeReplacement(const PlannedFault& fault, ProcessPtr p);
  bool StrikeLink(const PlannedFault& fault, ProcessPtr p);
  bool StrikeSource();
  bool StrikeSilently(ProcessPtr p);
  // Bits that flip between steps (rot.cc).
  bool FlipState(ProcessPtr p);
  void LoseRot(ProcessPtr p);
  bool IsRotten(Rank rank) const;
  bool CheckTaint(ProcessPtr p, uint64_t step);
  void TakeBackFlips();
  bool SendBadFrame(ProcessPtr p, int kind);
  bool LoseNode(int rank);
  bool LoseGroup(int rank);
  void Damage(ProcessPtr p, bool low);
  bool TakeDamage(ProcessPtr p);
  ProcessPtr Living(int rank) const;
  void NoteLoss(int rank, int times = 1);
  bool Hang(const PlannedFault& fault, ProcessPtr p);
  void NoteLate(int rank);
  void NoteDisturbed(int rank);

  // Checkers (check.cc).
  void CheckState(ProcessPtr p, uint64_t step, const std::string& when, Promise promise);
  void CheckCommit(ProcessPtr p);
  void CheckRepaired(ProcessPtr p, const RunOnTrainer& run);
  void CheckTransition(const Transition& transition);
  void CheckSpawn(Rank rank, Incarnation incarnation);
  void CheckSend(const Send& send);
  void CheckKill(const KillProcess& kill);
  void CheckWaits();
  void CheckProgress();
  void CheckObeyed(ProcessPtr p, Generation generation, const char* what);
  void CheckCheckpoint(uint64_t step, const Checkpoint& checkpoint);
  void CheckEnd();
  void CheckSuccess();
  bool ShardAtRisk() const;
  bool HoldsWhole(Rank rank, int layout, uint64_t step);
  void CheckNothingHeldIsLost(const RunEnded& ended);

  const Plan plan_;
  const LogFunction log_;
  Hook* const hook_;
  const size_t world_;
  mutable Random random_;
  const ReplicaMap replicas_;
  std::vector<std::vector<Rank>> partners_;  // by rank
  Reference reference_;
  Scheduler scheduler_;
  const TimePoint start_;
  std::unique_ptr<ControllerCore> core_;
  std::unique_ptr<ControllerCore> stale_;  // was replaced while it slept
  bool controller_down_ = false;
  std::vector<core::Checkpoint> checkpoints_told_;    // to launchers
  std::vector<std::unique_ptr<Launcher>> launchers_;  // by node; none: one controller, in a place of its own
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<std::unique_ptr<NodeLine>> lines_;
  Seat* seated_ = nullptr;   // whose are the members that a seat exchanges; the newest where none is stepped
  Seat* stepped_ = nullptr;  // the one that is stepped
  std::map<std::pair<int, int>, int> node_cuts_;  // from, to
  std::map<uint64_t, int> led_;                   // for the checkers: by whom, by term
  std::map<std::pair<int, uint64_t>, std::map<int, bool>>
      promised_ranks_;                                  // to a candidate in a term; whether they lived
  std::set<std::pair<Generation, Term>> acted_;         // who repaired in a generation
  std::map<Generation, std::map<Term, int>> consents_;  // with what weight it began
  StoreTable store_;
  Generation stored_generation_;
  std::vector<std::unique_ptr<Process>> all_processes_;
  std::vector<ProcessPtr> processes_;  // the newest of each rank
  std::vector<std::unique_ptr<Link>> all_links_;
  std::vector<LinkPtr> links_;  // the controller's connection of each rank
  LinkPtr joining_ = nullptr;
  std::vector<std::pair<LinkPtr, std::string>> waiting_joins_;  // while the core takes over
  std::vector<Road> roads_;
  std::map<Process::Key, Collective> collectives_;
  std::set<Generation> broken_;
  std::map<Generation, RepairSession> repairs_;
  std::map<uint64_t, Checkpoint> written_, visible_;
  std::map<Rank, Left> left_;                     // by launchers
  std::vector<int> spares_;                       // that wait, by node; empty before the run first runs
  std::vector<std::optional<Incarnation>> next_;  // to be started once the one before is reaped
  std::map<std::pair<int, int>, std::optional<Incarnation>> next_on_;  // the same, by node and rank
  std::map<std::pair<int, int>, ProcessPtr> on_;                       // the newest process of each rank on each node
  uint64_t next_request_ = 1;
  uint64_t refused_frames_ = 0, expected_refusals_ = 0;
  int flips_left_ = 0;
  uint64_t compared_at_ = 0;  // the step at which a bit that flipped must be found
  bool hidden_ = false;       // it was lost with its rank, or copied: no comparison can find it any more
  std::vector<Fault> faults_;
  std::map<int, int> bad_replacements_, slow_replacements_, fast_replacements_;
  std::map<Phase, int> entered_;
  std::optional<RunEnded> ended_;

  // For the checkers.
  Outcome outcome_;
  Phase phase_ = Phase::kAdmit;
  Generation lock_generation_;
  std::optional<Generation> before_confirm_;
  std::map<Rank, int> spawns_;
  std::map<Rank, int> rescues_;  // processes started only to save
  std::set<std::pair<Rank, Incarnation>> given_up_;
  std::map<Generation, uint64_t> released_;     // step by generation
  std::vector<std::vector<uint64_t>> samples_;  // by step and rank: staged before the gate
  bool ever_running_ = false;
  std::map<int, int> losses_;     // destructive faults by rank
  std::map<int, int> disturbed_;  // others
  bool start_disturbed_ = false;
  bool stop_asked_ = false;
  bool checkpoint_known_ = false;  // the controller was told of one
  bool nonsense_ = false;          // a handler lied: about a checkpoint, for example
  TimePoint last_progress_;        // newest commit or disturbance
};

}  // namespace kintsugi::sim
