// Agent::Impl: the driver around AgentCore. Three threads: the trainer's (impl_guard.cc, impl_markers.cc), the agent's
// own (impl_io.cc), which runs the connection, the beat and the core, and one that calls the stop handler (StopCaller).
//
// What the two share: the gate word (atomics in the page), the inbox (mutex_ and changed_), a few atomics. The core, the
// client and the term belong to the agent's thread. Handlers, the state service and the registry are the trainer's until
// Run sets running_, and constant afterwards: the agent's thread looks at them only when it has seen running_. Where
// tensors lie may still change (RebindTensor): other threads than the trainer's read that under places_.
// Once Run has returned nothing of the trainer's is called or read: Leave closes the agent's thread to it (CloseToTrainer).
// Order: the agent's thread locks the gate and drops untaken verdicts and releases under mutex_, and the trainer's takes
// them under it, so whoever comes second sees what the first did.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "callbacks/state/relocation.h"
#include "callbacks/state/shared_memory.h"
#include "runtime/agent.h"
#include "runtime/agent/begun_steps.h"
#include "runtime/agent/state_keeper.h"
#include "runtime/agent/stop_caller.h"
#include "runtime/agent/store_client.h"
#include "runtime/base/mutex.h"
#include "runtime/core/agent_core.h"
#include "runtime/core/held_state.h"
#include "runtime/inject/injection.h"
#include "runtime/net/client.h"
#include "runtime/process/shared_page.h"

namespace kintsugi {

class Agent::Impl {
 public:
  Impl(const AgentOptions& options, std::shared_ptr<LogSink> log);
  ~Impl();

  Status Start();  // connects and joins; a spare waits for its place first

  // Registration (impl_guard.cc).
  Status RegisterFault(const std::string& pattern, FaultClass fault_class);
  Status RebindTensor(const ShardedTensor& tensor);  // impl_relocate.cc
  Status UnregisterTensor(const std::string& key);   // likewise
  Status Run(LoopFunction loop, void* context);

  // The guard, task by task (impl_tasks.cc).
  Status BeginGuard(bool pulled);
  Result<GuardTask> NextTask(TimePoint until);
  Status CarryOutTask();
  Status FinishTask(const Status& outcome);
  Status LeaveLoop(const Status& status, bool threw);
  bool at_save_point() const { return at_ == TrainerAt::kAtSavePoint; }

  // Markers (impl_markers.cc).
  Status BeginStep(Step step);
  Status EnterPhase(Step step, TrainPhase phase);
  Status BeginCollective();
  Status Report(Step step, double loss, std::span<const uint64_t> samples);
  Status BeginUpdate(Step step);
  Status EndUpdate(Step step, const DeviceFence* update);
  // Until the device has come to the fence, or an incident begins.
  Status AwaitFence(const DeviceFence& fence, const char* what) const;
  Status Poll() const;
  Status BeginActivity(Activity activity);
  Status EndActivity();
  Status ReportMemoryError(const std::vector<std::string>& keys, const std::string& text, ErrorTime when);
  // impl_device.cc
  Status ReportCudaError(int error, int query, const std::vector<device::AddressRange>& damaged,
                         const std::string& text, ErrorTime when);

  AgentOptions options_;
  std::shared_ptr<LogSink> log_;
  StateRegistry registry_;
  Aliases aliases_;
  HandlerRegistry handlers_;
  std::shared_ptr<StateService> service_;
  std::shared_ptr<SnapshotService> snapshots_;
  std::map<int, core::GroupClaim> layouts_;
  GateMode gate_mode_ = GateMode::kControlPlane;
  GateFunction gate_function_ = nullptr;
  void* gate_context_ = nullptr;
  StateKeeper keeper_;
  StoreClient store_;
  std::atomic<bool> running_{false};
  core::JoinReply join_;
  Generation joined_generation_;  // constant from Join on
  int exit_code_ = 1;
  bool injected_throw_ = false;

 private:
  struct Release {
    Generation generation;
    Step step;
  };
  struct End {
    int exit_code = 0;
    std::string text;
  };
  static constexpr size_t kActivitiesMax = 16;
  // Where the trainer's thread is, as the guard sees it.
  enum class TrainerAt : uint8_t { kOutside, kParked, kInLoop, kAtSavePoint, kInTask, kEnded };
  struct OpenTask;

  Status PrepareClient();
  void StartThread();
  Status TakePlace();
  Status AwaitJoined();

  // Agent's thread.
  void ThreadMain();
  void Connect();
  void OnOpen(const net::ConnectionPtr& connection);
  void OnFrame(std::string_view payload);
  void OnJoinReply(const core::Header& header, const core::JoinReply& reply);
  void OnBeat();
  void Step_(const core::AgentEvent& event);
  void Post(core::AgentEvent event);
  void Send(Generation generation, const core::AgentMessage& message);
  void Act(const core::AgentAction& action);
  void LockGate();
  void DoInterrupt(const core::StopOrder& order);
  void DoEnd(int exit_code, const std::string& text);
  // The stop handler, on its own thread (impl_stop.cc).
  void CallStop(Duration limit);
  void CallStopHandler(CancelToken& cancel);
  void OnStopReturned(uint64_t request);
  void AwaitPark();
  void OnStopTimer(std::function<void()> late, Duration limit);
  void EndStopTimer();
  void ForwardReports();
  void OnCancelHandler();
  void OnDisconnect(const Status& why);
  void OnNoController(const Status& why);
  void Arm(const std::string& injection);
  // In-memory snapshots (impl_snapshot.cc).
  void ArmSnapshot(const core::ArmSnapshot& arm);
  void TellOfSnapshot(Generation generation, SnapshotReport report);
  void AbortSnapshot();
  bool StillAt(Step step) const;  // any thread: the state of `step` is whole, and nobody has touched it since

  // Trainer's thread.
  core::Ready MakeReady() const;
  void Park(core::TrainerParked::Outcome outcome, core::FaultReport fault = {});
  // One pass through the trainer's loop, with what left it turned into a parking.
  Status RunLoop(LoopFunction loop, void* context);
  Status CheckHandlers() const;
  Status CheckState() const;
  Status Leave();
  // Returns when no handler runs, none will, and nothing reads registered memory.
  void CloseToTrainer();
  HandlerContext ContextOf(const core::RunOnTrainer& run, CancelToken& cancel, Store& store) const;
  // Tasks (impl_tasks.cc).
  std::string_view TrainerPlaceName() const;
  Status Misplaced(const char* call) const;
  GuardTask EndGuard(const End& end);
  void TakeRelease() KINTSUGI_REQUIRES(mutex_);
  GuardTask EnterLoop();
  bool BeginTask(const core::RunOnTrainer& run);
  Status Verify();
  Status PrepareTask();
  Status ConcludeTask();
  void AnswerTask(const Status& status);
  core::FaultReport Classify(const Status& status) const;
  // Moves the word and keeps its lock bit, which the agent's thread may set at any moment.
  void MoveWord(core::GateState state, Step step);
  // Any thread: an update that is under way becomes torn; false: none is.
  bool TearUpdate();
  // That the loop has one thread; that `step` is the one that a right program computes now.
  Status CheckThread(const char* where);
  Status CheckStep(const char* where, Step step) const;
  Status CheckLayouts() const;
  void FinishLoop(const Status& status, bool threw);
  bool DropsOut();
  Status MirrorObjects(Step step);
  // State that outlives the process (impl_adopt.cc).
  void OfferState();
  // Tensors that move or go (impl_relocate.cc).
  Status CheckMayMove(const std::string& key, const char* what) const;
  Status BeginMoves(const std::string& what);
  Status DropUnregistered(const std::vector<std::string>& keys);
  void SettleMoves();
  void KeepObjects(Step step);
  void MarkState(core::StateMark mark);
  Status PrepareState(const core::RunOnTrainer& run);
  Status PassGate(Step step);
  Status AwaitVerdict(Step step);
  Status SaveAt(Step boundary);
  void TakeSnapshot(Step boundary);
  std::vector<std::string> KeysToPoison(const Injection& injection) const;
  void Poison(const Injection& injection);
  void Flip(const Injection& injection);
  Status StrikeIfDue(Step step, const std::function<bool(const Injection&)>& is_here);
  Status Strike(const Injection& injection, Step step);
  // impl_device.cc.
  Status StrikeDevice(const Injection& injection, Step step);
  Status DamageMemory(const Injection& injection, Step step);
  Status ReportDamage(const std::vector<device::AddressRange>& damaged, const std::string& text, ErrorTime when);
  // impl_commit.cc: the device's half of a commit.
  Status SettleUpdate();
  void NoteSettled();
  Result<bool> IsSettled() const;  // any thread
  Activity activity() const { return activities_.empty() ? Activity::kNone : activities_.back(); }
  void TellActivity();
  void SignalFault(core::FaultReport fault);
  Status InterruptedStatus(const char* where) const;

  SharedWords& words() { return page_->words(); }
  const SharedWords& words() const { return const_cast<Impl*>(this)->page_->words(); }
  std::atomic<uint64_t>& word() { return words().gate_word; }
  core::GateWord Word() const { return core::GateWord::Unpack(words().gate_word.load(std::memory_order_acquire)); }

  std::optional<SharedPage> page_;
  std::optional<ReportWriter> report_writer_;
  std::optional<ReportReader> report_reader_;  // only where no launcher reads the page

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer beat_timer_;
  boost::asio::steady_timer stop_timer_;  // the stop handler, then the trainer's thread on its way out of its step
  std::shared_ptr<const net::Secret> secret_;
  std::unique_ptr<net::Client> client_;
  net::ConnectionPtr connection_;
  std::optional<core::AgentCore> core_;
  std::thread thread_;
  // Agent's thread only.
  bool trainer_left_ = false;
  uint64_t stop_request_ = 0;  // the newest
  uint64_t stop_timer_use_ = 0;
  core::StopOrder stop_order_;
  // Set in Run before running_, constant afterwards.
  std::unique_ptr<StopCaller> stop_caller_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<Status> joined_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<core::RunOnTrainer> order_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<Release> release_ KINTSUGI_GUARDED_BY(mutex_);
  bool continue_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::optional<End> end_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<core::StopOrder> verdict_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<Step> gate_open_ KINTSUGI_GUARDED_BY(mutex_);
  std::shared_ptr<CancelToken> cancel_ KINTSUGI_GUARDED_BY(mutex_);
  std::vector<std::pair<uint32_t, Injection>> armed_ KINTSUGI_GUARDED_BY(mutex_);
  struct StopContext {
    Generation generation;
    Duration limit{};
    std::vector<Rank> fault_ranks;
  };
  std::optional<std::string> leaves_ KINTSUGI_GUARDED_BY(mutex_);  // why this process is to be replaced
  StopContext stop_context_ KINTSUGI_GUARDED_BY(mutex_);           // of the newest request

  Mutex places_;
  std::optional<Relocation> relocation_;  // what moves in the open task; the trainer's thread alone makes and ends it

  std::atomic<bool> any_armed_{false};
  std::atomic<uint64_t> pause_at_{0};
  std::atomic<uint64_t> snapshot_at_{0};  // whoever takes it out answers for it
  std::atomic<bool> ended_{false};
  // Behind the update that was committed last, until the trainer's thread has seen that it is done.
  std::atomic<const DeviceFence*> update_fence_{nullptr};
  // The thread that the loop runs on; 0: it has called nothing yet.
  std::atomic<uintptr_t> loop_thread_{0};
  std::atomic<bool> fault_told_{false};
  BegunSteps begun_steps_;

  // Trainer's thread only.
  TrainerAt at_ = TrainerAt::kOutside;
  TrainerAt task_before_ = TrainerAt::kParked;  // where the open task will leave it
  bool pulled_ = false;                         // tasks are pulled: nothing of the trainer's is called at a save point
  std::unique_ptr<OpenTask> task_;              // with kInTask
  std::vector<std::pair<std::string, FaultClass>> fault_patterns_;
  bool has_mirrored_ = false;
  bool ever_released_ = false;
  bool resumed_told_ = true;
  bool released_at_save_point_ = false;
  Step begun_;                          // in this pass of the loop
  std::string warning_;                 // of what was registered, for the controller's log
  std::set<std::string> unregistered_;  // tensors that are no part of the state any more, here or elsewhere
  Duration slow_{};                     // injected
  int collectives_ = 0;                 // begun in this step
  std::vector<Activity> activities_;    // open ones, the innermost last
  Generation generation_;
  Step released_at_;
};

// A task that the trainer's thread is at.
struct Agent::Impl::OpenTask {
  OpenTask(Impl& impl, const core::RunOnTrainer& order, std::shared_ptr<CancelToken> token)
      : run(order), cancel(std::move(token)), store(impl.store_.Of(order.generation)) {}
  const core::RunOnTrainer run;
  const std::shared_ptr<CancelToken> cancel;
  const std::unique_ptr<Store> store;
  HandlerContext call;
  core::PhaseDone done;
  std::vector<uint8_t> objects;  // rollback: this rank's mirrored ones, for the partners
};

}  // namespace kintsugi
