// Cluster: a whole virtual run around the real cores. One ControllerCore, an AgentCore per process, virtual time, links
// that delay and break, processes that start and die, trainers that compute, collectives, checkpoints, and checkers of
// DESIGN section 6's promises.
//
// Everything is drawn from the plan's seed: a seed is a replay. The drivers here do what the real drivers do.
#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <set>

#include "runtime/core/agent_core.h"
#include "runtime/core/controller_core.h"
#include "runtime/core/store_table.h"
#include "runtime/sim/plan.h"

namespace kintsugi::sim {

// What a run was like, for the checks that look over many of them.
struct Outcome {
  std::vector<std::string> violations;
  int exit_code = -1;
  std::string text;
  Duration took{};
  uint64_t incidents = 0;
  int attempts_max = 0;
  std::set<Rung> rungs;
  std::set<std::pair<FaultType, Phase>> struck;  // faults fired, by the controller's phase
  uint64_t healed = 0;
};

class Cluster {
 public:
  Cluster(Plan plan, bool log);
  Outcome Run();

 private:
  struct Link {
    Rank rank;
    Incarnation incarnation;
    bool up_open = true, down_open = true;
    TimePoint last_up, last_down;
  };
  using LinkPtr = std::shared_ptr<Link>;

  struct Process {
    Rank rank;
    Incarnation incarnation;
    bool alive = true, frozen = false, doomed = false;
    LinkPtr link;
    std::unique_ptr<AgentCore> core;
    bool replacement = false;
    uint64_t beats = 0;
    // Trainer.
    TrainerAt at = TrainerAt::kBoot;
    uint64_t activity = 0;  // a timer of an older activity is void
    uint64_t word = 0;
    uint64_t begun = 0;     // the step being computed
    uint64_t pause = 0;
    uint64_t released_at = 0;
    bool resumed_told = true;
    Generation released_generation;
    std::optional<ReleaseTrainer> release;
    std::optional<StopOrder> verdict;
    RankState state;
    bool damaged = false;   // by a memory fault, until repaired
    uint64_t gradient = 0;
    size_t piece = 0;
    std::map<uint64_t, uint64_t> objects;                  // own mirrored object by step
    std::map<Rank, std::map<uint64_t, uint64_t>> mirrored;  // partners' by step
    bool throw_next = false, throw_in_update = false;
    int failing_handlers = 0;
    int hanging_handlers = 0;   // the last of four does not even hear its cancel
    bool hangs = false, deaf = false;
    // Handler and collectives.
    std::optional<RunOnTrainer> order;    // not yet taken by the trainer's thread
    std::optional<RunOnTrainer> running;
    Generation group;                     // its communicator
    std::string blocked_in;               // collective, empty if none
    std::map<uint64_t, std::string> gets;  // outstanding reads of the store
  };
  using ProcessPtr = std::shared_ptr<Process>;

  struct Collective {
    std::map<Rank, uint64_t> values;
    std::map<Rank, uint64_t> objects;
    bool complete = false;
  };
  struct Transfer {
    RepairMove move;
    ProcessPtr source;
    bool done = false;
  };
  struct RepairSession {
    std::map<Rank, ProcessPtr> members;
    std::vector<Transfer> transfers;
  };
  struct Checkpoint {
    std::map<std::pair<int, Rank>, std::vector<uint64_t>> shards;  // by layout and first holder
    std::map<Rank, uint64_t> objects;
  };

  // Loop and time (cluster.cc).
  void In(Duration delay, std::function<void()> what);
  void For(const ProcessPtr& p, Duration delay, std::function<void()> what);
  void Trainer(const ProcessPtr& p, Duration delay, std::function<void()> what);
  Duration Between(int64_t low_us, int64_t high_us);
  Duration Latency();
  void Log(const std::string& text);
  void Violation(const std::string& text);

  // Controller's driver and network (cluster.cc).
  void Feed(const ControllerEvent& event);
  void Act(const ControllerAction& action);
  void Answer(const std::vector<StoreTable::Answer>& answers);
  void SendDown(const Header& header, ControllerMessage message);
  void SendUp(const ProcessPtr& p, Generation generation, AgentMessage message);
  void OnUp(const LinkPtr& link, const Header& header, const AgentMessage& message);
  void Connect(const ProcessPtr& p);
  void CutLink(const ProcessPtr& p);
  void Spawn(Rank rank, Incarnation incarnation);
  void Die(const ProcessPtr& p, const std::string& cause);
  void Beat(const ProcessPtr& p);
  void Tick();

  // Agent's driver and trainer (cluster_trainer.cc).
  void StepAgent(const ProcessPtr& p, const AgentEvent& event);
  void ActAgent(const ProcessPtr& p, const AgentAction& action);
  void OnDown(const ProcessPtr& p, const Header& header, const ControllerMessage& message);
  void OnJoinReply(const ProcessPtr& p, const Header& header, const JoinReply& reply);
  void LockGate(const ProcessPtr& p);
  void Interrupt_(const ProcessPtr& p, const StopOrder& order);
  void TakeRelease(const ProcessPtr& p);
  void Go(const ProcessPtr& p, TrainerAt at);
  void Park(const ProcessPtr& p, TrainerParked::Outcome outcome, FaultReport fault = {});
  void BeginStep(const ProcessPtr& p, uint64_t step);
  void Forward(const ProcessPtr& p, uint64_t step);
  void BeginUpdate(const ProcessPtr& p);
  void PassGate(const ProcessPtr& p);
  void AwaitVerdict(const ProcessPtr& p);
  void Update(const ProcessPtr& p);
  void TearUpdate(const ProcessPtr& p, FaultReport fault);
  void SetWord(const ProcessPtr& p, GateState state, uint64_t step);
  GateWord Word(const ProcessPtr& p) const { return GateWord::Unpack(p->word); }

  // Collectives (cluster_handlers.cc).
  void Enter(const ProcessPtr& p, const std::string& what, uint64_t value, std::optional<uint64_t> object);
  void Leave(const ProcessPtr& p, const std::string& name);
  void Fail(const ProcessPtr& p);
  void BreakGroup(Generation generation);
  // Handlers (cluster_handlers.cc).
  void StartOrder(const ProcessPtr& p);
  void Finish(const ProcessPtr& p, PhaseDone done);
  void Cancel(const ProcessPtr& p);
  void Rebuild(const ProcessPtr& p);
  void OnStoreReply(const ProcessPtr& p, const StoreReply& reply);
  void Repair(const ProcessPtr& p);
  void Reload(const ProcessPtr& p);
  void PushTransfers(Generation generation);
  void Copy(RepairSession& session, Transfer& transfer);
  void LeaveSession(const ProcessPtr& p);
  void Verify(const ProcessPtr& p);
  void Rollback(const ProcessPtr& p);
  void Save(const ProcessPtr& p);
  void Rename(const ProcessPtr& p);
  bool ObjectOf(const ProcessPtr& p, Rank rank, uint64_t step, uint64_t* object) const;

  // Faults (cluster_faults.cc).
  void OnPhase(Phase phase);
  void OnTrainerAt(const ProcessPtr& p);
  void Strike(PlannedFault& fault);
  void Damage(const ProcessPtr& p, const PlannedFault& fault);
  bool TakeDamage(const ProcessPtr& p);
  ProcessPtr Living(int rank) const;

  // Checkers (cluster_check.cc).
  void CheckState(const ProcessPtr& p, uint64_t step, const std::string& when);
  void CheckTransition(const Transition& transition);
  void CheckSpawn(Rank rank, Incarnation incarnation);
  void CheckSend(const Send& send);
  void CheckKill(const KillProcess& kill);
  void CheckEnd();
  void NoteLoss(int rank, int times = 1);

  struct Event {
    TimePoint at;
    uint64_t number;
    std::shared_ptr<std::function<void()>> what;
    bool operator>(const Event& other) const { return std::tie(at, number) > std::tie(other.at, other.number); }
  };

  Plan plan_;
  const bool log_;
  Random random_;
  ReplicaMap replicas_;
  Reference reference_;
  ControllerCore core_;
  StoreTable store_;
  Generation stored_generation_;
  TimePoint now_ = TimePoint(std::chrono::seconds(100));
  const TimePoint start_ = now_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t event_number_ = 0;
  std::map<Rank, ProcessPtr> processes_;     // the newest of each rank
  std::vector<ProcessPtr> all_processes_;
  std::map<Rank, std::pair<Incarnation, LinkPtr>> links_;
  std::map<std::string, Collective> collectives_;
  std::set<Generation> broken_;
  std::map<Generation, RepairSession> repairs_;
  std::map<uint64_t, Checkpoint> written_, visible_;
  uint64_t next_request_ = 1;
  int flips_left_ = 0;
  std::map<int, int> bad_replacements_;
  std::map<Phase, int> entered_;
  std::optional<RunEnded> ended_;

  // For the checkers.
  Outcome outcome_;
  Phase phase_ = Phase::kAdmit;
  Generation lock_generation_;
  std::optional<Generation> before_confirm_;
  std::map<Rank, int> spawns_;
  std::set<std::pair<Rank, Incarnation>> given_up_;
  std::map<Generation, uint64_t> released_;  // step by generation
  bool ever_running_ = false;
  std::map<int, int> losses_;       // destructive faults by rank
  bool start_disturbed_ = false;
  bool stop_asked_ = false;
  bool checkpoint_known_ = false;   // the controller was told of one
};

}  // namespace kintsugi::sim
