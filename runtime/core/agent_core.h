// AgentCore: what a rank does about the controller's orders, as a pure state machine beside ControllerCore.
//
// It knows where the trainer's thread is (in its loop, parked in the guard, inside a handler), refuses orders of older
// terms and generations, supersedes handlers of an older generation, and keeps the rank's own offer of its state:
// withdrawn before a repair writes the first byte, given again once VERIFY has passed.
// Threads: none; the agent's driver steps it.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/core/agent_news.h"
#include "runtime/core/messages.h"

namespace kintsugi::core {

// ---- events ------------------------------------------------------------------------------------------------------

struct FromController {
  Header header;
  ControllerMessage message;
};
// The gate was locked, as LockGate asked; `word` is what stood there.
struct GateLocked {
  GateWord word;
};
// The trainer's thread came into the guard.
struct TrainerParked {
  enum class Outcome : uint8_t { kReady, kInterrupted, kFault, kFinished, kFinishedChanged };
  Outcome outcome = Outcome::kInterrupted;
  GateWord word;
  FaultReport fault;           // kFault
  bool objects_ahead = false;  // Parked::objects_ahead
};
// A fault signalled while the trainer's thread is not in the guard (damaged memory, a gate that failed).
struct FaultSignal {
  FaultReport fault;
};
struct HandlerDone {
  Generation generation;
  PhaseDone done;
  std::optional<Published> published = {};  // what the RENAME that is done made visible
};
struct InexactNoted {  // by the trainer, at any time
  std::string text;
};
struct StopReturned {};  // the stop handler that Interrupt asked for last has returned: the trainer is not in its way
struct TrainerResumed {};
struct TrainerAtSavePoint {
  Step step;
  bool objects_ahead = false;
};
struct TrainerAtGate {  // control-plane gate
  Step step;
};
struct PauseStored {
  Step begun;
};
struct SnapshotCopied {  // a copy was made or failed, by an order of that generation
  Generation generation;
  SnapshotReport report;
};
struct Connected {  // the control connection is back, to this controller
  Term term;
};

struct MarksTaken {  // TellMarks is answered
  RankMarks marks;
};

using AgentEvent = std::variant<FromController, GateLocked, TrainerParked, FaultSignal, HandlerDone, TrainerResumed,
                                TrainerAtSavePoint, TrainerAtGate, PauseStored, Connected, SnapshotCopied, StopReturned,
                                InexactNoted, MarksTaken>;

// ---- actions -----------------------------------------------------------------------------------------------------

struct SendMessage {
  Generation generation;
  AgentMessage message;
};
struct LockGate {};            // answer with GateLocked, also where it is locked already
struct Interrupt {  // tell the gate its verdict, abort collectives, make the trainer park; answer with StopReturned
  StopOrder verdict;
};
struct RunOnTrainer {          // answer with HandlerDone
  Generation generation;
  PhaseOrder order;
  std::vector<Rank> crew = {};  // who takes part in the generation, once REBUILD has said so; no ranks: all
};
struct CancelHandler {};       // the running handler is superseded; it still answers with HandlerDone
struct SetCommitted {          // the gate word becomes committed(step), still locked
  Step step;
};
struct ReleaseTrainer {        // unlock the gate, back to the loop
  Generation generation;
  Step step;
  bool whole = true;  // false: memory was damaged that no repair has proved yet; what is left of the process is of no use
};
struct ContinueTrainer {};     // leave the save point
struct StorePause {            // replaces an earlier one; 0: none. Answer with PauseStored. Nothing else clears a pause
  Step step;
};
struct OpenGate {
  Step step;
};
struct StoreAnswered {
  StoreReply reply;
};
struct ArmInjection {
  std::string injection;
};
struct ArmSnapshot {  // answer with SnapshotCopied, for one's own copy and for each that comes in
  Generation generation;
  SnapshotOrder order;
};
struct EndTrainer {
  int exit_code = 0;
  std::string text;
};

struct TellMarks {  // answer with MarksTaken
  uint64_t round = 0;
};

using AgentAction =
    std::variant<SendMessage, LockGate, Interrupt, RunOnTrainer, CancelHandler, SetCommitted, ReleaseTrainer,
                 ContinueTrainer, StorePause, OpenGate, StoreAnswered, ArmInjection, EndTrainer, ArmSnapshot,
                 TellMarks>;

class AgentCore {
 public:
  // `replacement`: this process has not held the run's state yet.
  // `crew`: as its JoinReply tells it.
  AgentCore(Rank rank, Incarnation incarnation, Term term, Generation generation, bool replacement,
            std::vector<Rank> crew = {})
      : rank_(rank),
        incarnation_(incarnation),
        term_(term),
        generation_(generation),
        offer_valid_(!replacement),
        crew_(crew),
        next_crew_(std::move(crew)) {}

  std::vector<AgentAction> Step(const AgentEvent& event);

  Generation generation() const { return generation_; }
  Term term() const { return term_; }
  bool locked() const { return locked_; }
  Standing standing() const;
  // STOP was ordered, and the trainer's thread has not come out of its step yet.
  bool awaits_trainer() const { return stop_.due.has_value() && !stop_.runs && trainer_ != Trainer::kParked; }
  // How long it has for that since the stop handler's return, by where it stands: in its step, in a handler, or elsewhere
  // in its loop at `place`. REQUIRES: awaits_trainer.
  Duration ParkLimit(const Progress& place) const;
  uint64_t refused() const { return refused_; }
  // Whom it takes part with since it last went on, no ranks: all; and the generation that began with that.
  const std::vector<Rank>& crew() const { return crew_; }
  Generation crew_since() const { return crew_since_; }
  // The Ready message is the driver's to fill; it is sent again after a reconnect.
  void SetReady(Ready ready) { news_.SetReady(std::move(ready)); }

 private:
  enum class Trainer : uint8_t { kInLoop, kParked, kInHandler };

  void OnMessage(const FromController& event);
  // Whether that locks the gate.
  bool Advance(Generation generation);
  void ClearPause();
  void OnLock(bool under_way);
  void OnGateLocked(const GateLocked& event);
  void OnStop(const StopOrder& order);
  void OnPhaseOrder(const PhaseOrder& order);
  void OnResume(const ResumeOrder& order);
  void OnContinue();
  void OnSavePoint(const TrainerAtSavePoint& event);
  void OnParked(const TrainerParked& event);
  void OnFinished(const TrainerParked& event);
  void OnHandlerDone(const HandlerDone& event);
  void OnSnapshotOrder(const SnapshotOrder& order);
  void OnSnapshotCopied(const SnapshotCopied& event);
  void Report(const FaultReport& fault);
  void ReportParked();
  void StartHandler();
  // What it holds was brought to a step and compared.
  void TakeVerified();
  void Send(AgentMessage message) { out_.push_back(SendMessage{generation_, std::move(message)}); }

  // What the trainer's thread does, or is to do, for a phase. The same phase comes again for another step (saves).
  struct Work {
    Phase phase = Phase::kClean;
    kintsugi::Step step;
    Generation generation;
    Duration limit{};

    bool Is(const PhaseOrder& order) const { return phase == order.phase && step == order.step; }
  };
  struct Handler {
    std::optional<PhaseOrder> due;                   // to be run once the trainer's thread is free
    Work running;                                    // with Trainer::kInHandler
    std::optional<std::pair<Work, PhaseDone>> done;  // the newest answer of this generation, in case it is lost
  };
  struct Stop {
    std::optional<StopOrder> due;  // to be answered with Parked
    bool runs = false;             // the stop handler: nobody is parked before it has returned
  };
  struct Pause {
    kintsugi::Step at;  // stored; 0: none
    bool due = false;   // the controller waits for PauseAck
  };

  const Rank rank_;
  const Incarnation incarnation_;
  Term term_;
  Generation generation_;
  bool offer_valid_;
  bool locked_ = true;  // a fresh process waits for its first Resume
  bool resumed_ = false;  // in this generation
  bool ended_ = false;
  std::vector<Rank> crew_, next_crew_;  // next: of this generation, once the run goes on in it
  Generation crew_since_;
  bool holds_state_ = false;  // was brought to the run's state
  bool released_ = false;     // ever
  bool cut_anew_ = false;     // in this generation: until the run goes on its offer is of what was registered before
  Trainer trainer_ = Trainer::kInLoop;
  GateWord word_;  // once the trainer's thread is parked; until then the driver's counts
  bool objects_ahead_ = false;
  bool lock_reply_due_ = false;
  Stop stop_;
  Handler handler_;
  Pause pause_;
  AgentNews news_;
  std::vector<AgentAction> out_;
  uint64_t refused_ = 0;
};

}  // namespace kintsugi::core
