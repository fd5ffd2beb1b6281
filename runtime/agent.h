// Agent: the library inside one training process. This header is what a trainer writes against.
//
//   auto agent = kintsugi::Join(options);             integrations/cpp/kintsugi.h, with the default handlers installed
//   agent->RegisterTensor(...), RegisterObject(...), SetReplicaLayout(...), RegisterHandler(...)
//   agent->Run(loop, context)                         the guard: calls loop(first_step), repairs, calls it again
//
// and in the loop, for every step k from first_step on:
//
//   BeginStep(k); forward; backward; gradient sync; Report(k, ...);
//   BeginUpdate(k); ... nothing but local arithmetic ...; EndUpdate(k); parameter sync
//
// The loop returns a status at once when any call (or a collective of its own) gives one that is not ok; the guard
// parks the thread, runs the handlers of the incident on it and calls the loop again from the step all ranks agreed on.
//
// Threads: calls are for the trainer's one thread, and a second one in the loop is refused by name; Poll,
// ReportMemoryError and ReportCudaError are for any. The agent has two threads of its own; one of them calls the stop
// handler and nothing else of the trainer's.
// Ownership: handlers' contexts, registered memory and objects outlive Run: once that has returned, no handler runs or
// will run, and nothing of the trainer's is read any more.
// Errors: kInterrupted: return it from the loop. kFailedPrecondition: the call's order is wrong, the message says how.
// The agent installs no signal handler and never ends the process (an injected fault, asked for by name, does).
#pragma once

#if __cplusplus < 202002L
#error "Kintsugi's C++ headers need C++20 (-std=c++20)"
#endif

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "callbacks/handlers/handlers.h"
#include "callbacks/state/descriptors.h"
#include "runtime/agent/agent_options.h"
#include "runtime/agent/guard_task.h"
#include "runtime/base/export.h"
#include "runtime/base/log.h"
#include "runtime/base/train_phase.h"

namespace kintsugi {

// callbacks/state/device_memory.h: for state on a device.
class DeviceFence;
class DeviceMemory;

enum class JoinKind : uint8_t {
  kFresh,        // the run begins
  kReplacement,  // this process takes the place of a lost one: its state comes from a replica
  kResumed,      // the run begins from a checkpoint
};

enum class GateMode : uint8_t {
  kControlPlane,  // the controller opens the gate when every rank has entered it
  kTrainer,       // the trainer's own barrier, abortable by its stop handler
  kOff,           // no barrier: ranks may stand one step apart, and some faults then need a reload
};

// What an error that leaves the loop means for its rank.
enum class FaultClass : uint8_t { kException, kCommError, kMemoryError };

// How a loop was left, beside its status.
enum class LoopEnd : uint8_t {
  kStatus,   // by a status; ok: training is complete
  kThrew,    // by an exception, for which the status stands
  kRefused,  // the program broke a rule of the library, which the status names: no repair is tried, the run ends
  kChanged,  // training is complete, and registered tensors were changed behind the last step (a best model loaded):
             // replicas are not compared at the end, and this rank's state is offered to nobody any more
};

// When an error happened, as far as its reporter knows: state that was used after that may be wrong, and with it the
// updates that were computed from it.
struct ErrorTime {
  enum class Known : uint8_t { kNow, kAt, kUnknown };
  Known known = Known::kNow;
  TimePoint at;  // kAt

  // The access itself failed: nothing of what is damaged has been used.
  static ErrorTime Now() { return {}; }
  // Not before then. Where this rank has contributed gradients since, their updates are suspect, and the run goes back
  // to a snapshot or a checkpoint from before them.
  static ErrorTime At(TimePoint at) { return {Known::kAt, at}; }
  // The newest update that this rank contributed to is suspect.
  static ErrorTime Unknown() { return {Known::kUnknown, {}}; }
};

// Runs from `first_step` to the end of training. Ok: training is complete.
using LoopFunction = Status (*)(Step first_step, void* context);
// A barrier over all ranks; kCommFailure or kCancelled when it was aborted. Must not throw.
using GateFunction = Status (*)(Step step, void* context);

// What a rank registers for other ranks (Agent::CutAnew).
struct CutState {
  struct Layout {  // as SetReplicaLayout
    int layout = 0;
    std::vector<Rank> group;
    int replicas = 1;
  };
  std::vector<ShardedTensor> tensors;
  std::vector<ShardedObject> objects;
  std::vector<Layout> layouts;
  std::map<std::string, std::string> aliases;  // each with its tensor's key, as RegisterAlias
};

class KINTSUGI_EXPORT Agent {
 public:
  // Connects, proves the secret, joins. Blocks for at most options.join_timeout; in a spare first of all until a rank
  // needs it, so what a program does before it joins is then done, and which rank it is it learns here (rank()).
  // kPermissionDenied: wrong secret. kDeadlineExceeded: no controller. kFailedPrecondition: the controller refuses this
  // incarnation. kEnded: no rank needed this spare.
  static Result<std::unique_ptr<Agent>> Join(const AgentOptions& options, std::shared_ptr<LogSink> log = NullLogSink());
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  Rank rank() const;
  int world_size() const;
  // Who took part when this process joined, ascending: all ranks, but in a run that ranks have left for good (OfferWorlds).
  // A rank's place among them is its number: what batches and groups are cut by.
  std::vector<Rank> crew() const;
  JoinKind join_kind() const;
  Incarnation incarnation() const;
  // Index of this rank's device on its node, where the launcher says so (--devices N); else -1.
  int device() const;

  // ---- before Run ------------------------------------------------------------------------------------------------

  Status RegisterTensor(const ShardedTensor& tensor);
  // The other way round, after it has begun: a registered tensor lies elsewhere from now on, in `tensor.memory`, which
  // holds its bytes already; key, type, shapes and layout are as they were registered. Nothing reads its old place any
  // more; tensors() shows the new one once the handler has returned. In the handlers clean, rebuild_group and rollback
  // (and tasks of these kinds), where no rank looks at another's state; elsewhere kFailedPrecondition. kNotFound:
  // nothing is registered under this key.
  Status RebindTensor(const ShardedTensor& tensor);
  // The other way round, where RebindTensor may be called: this tensor is no part of the state any more. It is not
  // streamed, compared, saved or restored from then on, on no rank: ranks that do not say so themselves are told with
  // their next order, and so is a process that comes later and registers it. In rollback every rank that registered it
  // must say so. Nothing reads its memory any more. A checkpoint or snapshot from before it is used without it. Ok also
  // where it is gone already; kNotFound: it never was; kInvalidArgument: an alias is in the way.
  Status UnregisterTensor(const std::string& key);
  Status RegisterObject(const ShardedObject& object);
  // One more name of a registered tensor (tied weights: an embedding that is the output matrix too). It is held and
  // repaired once; checkpoints have both names, and a run resumes from one that has either.
  Status RegisterAlias(const std::string& alias, const std::string& key);
  // The rank's group for `layout` (ascending, itself included) and the number of replicas, which divides its size:
  // MindIO's stride rule says who holds the same shard.
  Status SetReplicaLayout(int layout, const std::vector<Rank>& group, int replicas);
  // The trainer can go on with other ranks. `slice`: those that together hold one whole replica of the model, itself
  // included, ascending; `worlds`: how many ranks it can run with, ascending. Where ranks are lost for good, and none can
  // replace them, whole slices are left out, and not a byte moves: rebuild_group finds the new world_size, crew and
  // Number() in its context, and cuts batches and groups anew. A rank that is left out ends: Run returns ok, exit_code() is
  // 0. Where somebody asks for more ranks again (`kintsugi scale`), the places that are empty get new processes: they join with
  // the larger crew(), and have state and mirrored objects from the others; so each object's take_over must be kRankZero or
  // kDerived, or nobody comes. The same `worlds` on all ranks. Without it a run keeps its world. kInvalidArgument says what is no offer.
  Status OfferWorlds(const std::vector<Rank>& slice, const std::vector<int>& worlds);
  // The trainer can go on with any ranks, in so many: for each crew it cuts its state anew. In rebuild_group of such a change the
  // context says `relayout`, and CutAnew says what this rank is to hold among those that take part then (a process that comes
  // for that has registered it: it need not). The pieces come from whoever holds them, and ranks that leave stay until
  // theirs are elsewhere. Rollback, which begins once all of that was compared, goes by what was cut, and once the loop is entered
  // it is what is registered: what was there before is as it was until then, and in AllocateState's memory it is freed then.
  // Where the change comes to nothing what was cut is dropped and freed instead, unless the next handler's context names its
  // generation (`registered_in`). The same `worlds` on all ranks. On one host, with state in host memory; kintsugi::Join's repair moves it.
  Status OfferAnyLayout(const std::vector<int>& worlds);
  // In rebuild_group, once a call, where its context says so: memory of its own, objects of the same keys, kinds and take_over,
  // the aliases of what it still holds, tensors that together with those of the other ranks are what is registered by now. kInvalidArgument says what does not fit.
  Status CutAnew(const CutState& state);
  // Where other ranks take part the trainer's rollback handler itself lets objects of kOwn go on among them: until then a rank that
  // comes has what the rank had that it is given the state by. Without it such an object keeps ranks from coming.
  Status HandOverObjects();
  // Steps may be refused (Reject, or by the rules of --veto as BeginUpdate is called: its status then is as Reject's), and up to `most`
  // (where --veto does not say it) be left out, which the loop does where LeftOut says so. On all ranks, or on none.
  Status AllowRejects(int most = 10);
  Status RegisterHandler(HandlerKind kind, HandlerFunction function, void* context);
  // What is registered for a kind now: a trainer that replaces one of the defaults that kintsugi::Join installed can
  // call what stood there. Null function: nothing is.
  HandlerRegistry::Entry handler(HandlerKind kind) const;
  // What is registered now, ascending by key, wherever it lies by now.
  std::vector<ShardedTensor> tensors() const;
  Status SetGate(GateMode mode, GateFunction function = nullptr, void* context = nullptr);
  // An error whose text contains `pattern` is of this class; the first match wins, anything else is an exception.
  Status RegisterFault(const std::string& pattern, FaultClass fault_class);
  // State memory that other processes of this host can map: the fastest to repair from. Lives as long as the agent.
  // Also later, for tensors that move there.
  Result<Memory> AllocateState(uint64_t size_bytes);
  // The same on the device of SetDeviceMemory, which comes first: it outlives a killed process, and the next one adopts it where all
  // registered tensors lie in such memory of the host or the device. Not zeroed. kNotFound: that device has none such; kResourceExhausted.
  Result<Memory> AllocateDeviceState(uint64_t size_bytes);
  // The same of host memory that the trainer has mapped from a memory file of its own: all of it, MAP_SHARED, sealed against
  // shrinking. The agent keeps a descriptor of its own. Where such memory is adopted, other bytes appear at the same
  // addresses, and `file` is no longer what lies there. kInvalidArgument says what it is not.
  Status ShareState(void* data, uint64_t size_bytes, int file);
  // How registered tensors of kind kDevice are reached: needed for each of them unless the trainer brings handlers of
  // its own (Agent::Join, without kintsugi::Join's). CudaMemory (replica/device/cuda_memory.h) is one.
  Status SetDeviceMemory(std::shared_ptr<const DeviceMemory> memory);
  // Completes the description of memory that lies inside an AllocateState allocation; leaves any other as it is.
  void DescribeMemory(Memory* memory) const;

  // ---- the guard -------------------------------------------------------------------------------------------------

  // Ok when training is complete on every rank; kEnded when the run was ended before, with exit_code() saying how.
  Status Run(LoopFunction loop, void* context);
  // What this process should exit with after Run: 0, 75 (resume me), or 1.
  int exit_code() const;

  // ---- the guard, pulled -------------------------------------------------------------------------------------------
  // Instead of Run, for trainers that cannot be called back: tasks come one by one (runtime/agent/guard_task.h), and
  // nothing of the trainer's is called on its thread. Only the stop handler is needed; CarryOutTask calls the others
  // that are registered. A call out of turn is kFailedPrecondition and says what comes first.

  Status BeginGuard();
  // Blocks until there is something to do or `until` has come. In BeginStep at a save point tasks are pulled too: it
  // returns kInterrupted, and at_save_point() is true until kContinue or kUnwind has come.
  Result<GuardTask> NextTask(TimePoint until = TimePoint::Max());
  // The task is done: by the trainer, or now by the registered handler.
  Status FinishTask(const Status& outcome);
  Status CarryOutTask();
  // The loop has ended: ok, training is complete; `threw`: the status stands for an exception.
  Status LeaveLoop(const Status& why, bool threw) { return LeaveLoop(why, threw ? LoopEnd::kThrew : LoopEnd::kStatus); }
  // `signature` names what was thrown and where: three incidents running with the same one end the run. Empty: it is
  // compared with none.
  Status LeaveLoop(const Status& why, LoopEnd end, const std::string& signature = {});
  bool at_save_point() const;

  // The rendezvous store of `generation`, or of the one this rank joined in (0), for groups that are made before Run.
  // Any thread; it does not outlive the agent.
  std::unique_ptr<Store> OpenStore(Generation generation);
  // That of the pass through the loop that is under way; 0 before the first one. The trainer's thread.
  Generation generation() const;

  // ---- in the loop -----------------------------------------------------------------------------------------------

  // The top of step k, which follows the newest committed one; once a step and pass of the loop. Parks here for
  // periodic and ordered saves.
  Status BeginStep(Step step);
  // Progress inside a step, for the launcher, and the place where an injected fault strikes. An injected `throw` is
  // kInternal: a mistake of the trainer's own, which its loop returns or throws.
  Status EnterPhase(Step step, TrainPhase phase);
  // The step is about to begin its next collective: counted from BeginStep on, and the place of faults that were
  // ordered at the n-th one. Optional, as EnterPhase. The trainer's thread, or another that it waits for.
  Status BeginCollective();
  // The same where what this rank gives to it lies in host memory, and is a function of the step's inputs: its checksum is
  // among what is compared where a step is refused (AllowRejects), and the bit of an ordered `flip-grad` flips in it.
  Status BeginCollective(std::span<uint8_t> given);
  // A number of this rank's own that is compared so: a sum of what a device has computed. `of` keeps those apart whose order
  // among each other is not always the same.
  void NoteComputed(const std::string& of, uint64_t number);
  // Staged before the gate, kept by the launcher; counts once step is committed. Samples are the ids this rank consumed
  // (at most 8,187).
  Status Report(Step step, double loss, std::span<const uint64_t> samples);
  // The norm of all gradients, by which steps are refused under --veto nan and norm:X: before the gate, on all ranks, where they have
  // summed them up. AsksNorm: such rules are set, and this rank's loss, which is reported before, does not refuse the step already.
  bool AsksNorm(Step step) const;
  Status ReportNorm(Step step, double norm);
  // Before the gate of the step under way: nothing of it is to become part of the state. One rank is enough; the loop returns
  // the status. All make the step again, from the same state: so the same inputs must come to the same numbers
  // (BeginCollective, NoteComputed). Refused again by the same numbers, its data is to blame: all ranks leave it out. Where
  // some ranks alone have computed otherwise than before, their machines are to blame, and new processes take their places
  // where they may (--max-respawns), while the step is made again: BeginStep is kEnded there, as Run is then.
  Status Reject(Step step, const std::string& reason) { return Reject(step, reason, {}); }
  struct RejectOptions {
    // Should its data be to blame, so many steps before it are left out with it: the run goes back to before them, to the newest
    // in-memory snapshot or checkpoint that is as old as that. Where none is, as far as a snapshot reaches; the record says how far.
    uint64_t back = 0;
    // By what all ranks have summed up: all will find it, and who can say more comes first.
    bool of_all = false;
  };
  Status Reject(Step step, const std::string& reason, const RejectOptions& options);
  // Not null: all ranks leave this step out, and why. Its batch is passed by and nothing is computed or drawn: BeginUpdate and
  // EndUpdate commit it as an empty one. From BeginStep on, and in rollback, of all steps that are known to be left out.
  const std::string* LeftOut(Step step) const;
  // The first such step behind `after`.
  std::optional<Step> NextLeftOut(Step after) const;
  // Steps that were left out; where the run resumed, since then.
  std::vector<Step> left_out() const;
  // Passes the gate: from here to EndUpdate nothing but local arithmetic.
  Status BeginUpdate(Step step);
  Status EndUpdate(Step step);
  // The same where a device does the work and the host only enqueues it. `inputs` stands behind everything that the
  // update needs (the reduced gradients); the gate is entered once it is done. `update` stands behind the update's
  // kernels and belongs to the commit: until it is done, the rank counts as being within the update. At an incident the
  // trainer's thread waits for it in the guard for at most AgentOptions::device_limit; an update that is not done then,
  // or failed, is torn, and the rank's state comes from a replica. Save points and snapshots wait for it too. Fences
  // live as long as the agent; one of each, recorded anew in every step, will do. Waits end with kInterrupted at an
  // incident.
  Status BeginUpdate(Step step, const DeviceFence& inputs);
  Status EndUpdate(Step step, const DeviceFence& update);
  // Mirrored objects that have changed since the gate of `step`, the newest committed one: what they capture now is what
  // a save at that step, a snapshot, a rollback to it and a process that adopts this one's memory find. Partners hear
  // of it at the next gate. Between EndUpdate and the next BeginUpdate; also once an incident has begun, and in the rollback
  // handler, at whose end they hear of it.
  Status RefreshObjects(Step step);
  // For long stretches without a collective: kInterrupted once an incident has begun.
  Status Poll() const;

  // The trainer is busy with something that takes longer than a step; until the matching EndActivity its standing still
  // is no hang (within ten step timeouts). Activities nest; those that are open when the loop is left end with it.
  // Within a step they also keep that step out of the learnt step time. ActivityScope does both. kWait does neither: it
  // is part of the step, and says that others are waited for, who hang rather than this rank.
  // In kSection it is none as long as it takes, nor is waiting for it; `limit` bounds one activity: standing in it longer
  // is a hang of this rank. An incident waits for an activity to come to its end, within the same bounds.
  Status BeginActivity(Activity activity, Duration limit = Duration::max());
  Status EndActivity();

  // Something of this rank is not what an undisturbed run would have: a sentence such as "object 'random', step 17", for
  // the log and the run's summary. In the loop and in handlers; said twice it stands there once.
  Status NoteInexact(const std::string& text);

  // Mirrored objects of `rank` as of `step`, by key: this rank's own, or those that it keeps for a partner. They are
  // kept of the newest two steps, from the gate on. kNotFound: nothing is known of that rank and step.
  Result<std::map<std::string, std::vector<uint8_t>>> MirroredOf(Rank rank, Step step) const;
  // A digest for each layout over what this rank holds of it now, as repairs compare it: equal on ranks that hold the
  // same. Reads all of the state. The trainer's thread, where no update is under way. kFailedPrecondition: nobody
  // keeps state here (Agent::Join, without kintsugi::Join's defaults).
  Result<std::map<int, uint64_t>> StateDigests() const;

  // Registered tensors are damaged (or, with no keys, all of this rank's memory), since `when`. Tells the controller at
  // once; return the status from the loop. Any thread: another than the trainer's need not bring it out of its loop.
  // kInvalidArgument names a key that is not registered: then nothing was told.
  Status ReportMemoryError(const std::vector<std::string>& keys, const std::string& text,
                           ErrorTime when = ErrorTime::Now());

  // A CUDA call failed. `error` is its cudaError_t, `query` what something trivial gave right after it;
  // `damaged`: addresses, where an event named them. Return the status from the loop.
  //   no fault of the device (kInternal):              an exception as any other
  //   context alive, damage within registered tensors: these get fresh memory and are streamed (patch)
  //   context alive, other damage:                     all of this rank's memory is streamed (rebuild)
  //   context lost, no device (kEnded):                Run returns kEnded with exit code 1: leave, a new process comes
  // Any thread. REQUIRES: nothing of the trainer's uses the device meanwhile.
  Status ReportCudaError(int error, int query, const std::vector<AddressRange>& damaged, const std::string& text,
                         ErrorTime when = ErrorTime::Now());

  class Impl;

 private:
  friend class AgentInternals;  // the library's own
  explicit Agent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// BeginActivity and EndActivity around a block.
class ActivityScope {
 public:
  ActivityScope(Agent& agent, Activity activity) : agent_(agent), open_(agent.BeginActivity(activity).ok()) {}
  ~ActivityScope() {
    if (open_) static_cast<void>(agent_.EndActivity());
  }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  Agent& agent_;
  const bool open_;
};

}  // namespace kintsugi
