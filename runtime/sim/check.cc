// The checkers: what every run must keep, whatever struck it. Each names the promise that it holds the run to.
#include <algorithm>

#include "runtime/sim/elections.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// After the last fault and the last commit a run goes on or ends within this time: the longest wait of the default
// limits is that of a repair whose receiver never answers, and after it everything is tried once more.
constexpr Duration kProgressLimit = 90s;

}  // namespace

// At `step` a rank holds exactly what an undisturbed run holds there.
void Cluster::CheckState(ProcessPtr p, uint64_t step, const std::string& when, Promise promise) {
  if (CheckTaint(p, step)) return;
  const RankState& expected = reference_.At(step, p->rank);
  const std::string who = "rank " + p->rank.ToString() + ", " + when + ": ";
  for (size_t i = 0; i < expected.shards.size(); ++i)
    for (const Tensor& tensor : p->state.shards[i].tensors)
      if (tensor.updates != step)
        return Break(Promise::kUpdateOnce, who + "a tensor at step " + std::to_string(step) + " has seen " +
                                               std::to_string(tensor.updates) + " updates");
  if (p->state.shards != expected.shards)
    return Break(promise, who + "its state is not that of step " + std::to_string(step));
  const Object* object = ObjectOf(p, p->rank, step);
  if (!object || object->value != expected.object.value)
    return Break(promise, who + "its object is not that of step " + std::to_string(step));
  if (object->position != expected.object.position)
    Break(Promise::kSamplesOnce, who + "its iterator at step " + std::to_string(step) + " has drawn " +
                                     std::to_string(object->position) + " samples");
}

void Cluster::CheckCommit(ProcessPtr p) {
  last_progress_ = Now();
  const auto r = static_cast<size_t>(p->rank.value());
  if (samples_[p->begun][r] != (p->begun - 1) * world_ + r)
    Break(Promise::kSamplesOnce, "rank " + p->rank.ToString() + " commits step " + std::to_string(p->begun) +
                                     " with sample " + std::to_string(samples_[p->begun][r]));
  if (CheckTaint(p, p->begun)) return;
  // The objects were checked when the loop was entered and move by one rule; what they feed is in the tensors.
  const RankState& expected = reference_.At(p->begun, p->rank);
  if (p->state.shards == expected.shards) return;
  CheckState(p, p->begun, "committed", Promise::kBitIdentical);
}

void Cluster::CheckRepaired(ProcessPtr p, const RunOnTrainer& run) {
  const auto& moves = run.order.moves;
  const bool receives = std::any_of(moves.begin(), moves.end(),
                                    [&](const RepairMove& m) { return m.destination == p->rank && m.keys.empty(); });
  if ((!receives && !run.order.from_snapshot) || p->flipped || p->damaged) return;
  CheckState(p, run.order.step.value(), "repaired in generation " + run.generation.ToString(), Promise::kSameStep);
}

void Cluster::CheckObeyed(ProcessPtr p, Generation generation, const char* what) {
  if (generation >= p->newest_heard) return;
  Break(Promise::kOneDecider, "rank " + p->rank.ToString() + " " + what + " of generation " + generation.ToString() +
                                  " and has heard of " + p->newest_heard.ToString());
}

void Cluster::CheckTransition(const Transition& transition) {
  if (transition.from != phase_) Break(Promise::kTable, "a transition from where the incident is not");
  if (!IsTransition(transition.from, transition.to))
    Break(Promise::kTable,
          "no transition " + std::string(PhaseName(transition.from)) + " -> " + std::string(PhaseName(transition.to)));
  phase_ = transition.to;
  if (transition.to == Phase::kConfirm) before_confirm_ = core_->generation();
  if (transition.to == Phase::kLock && lock_generation_.value() > 0 && transition.generation < lock_generation_)
    Break(Promise::kTable, "LOCK of an older generation");
  if (transition.from == Phase::kLock && transition.to != Phase::kEnded) {
    if (transition.generation < lock_generation_ ||
        (transition.generation == lock_generation_ && transition.to != Phase::kLock))
      Break(Promise::kTable, "an attempt without a generation of its own");
    if (transition.to != Phase::kLock) lock_generation_ = transition.generation;
  }
  if (transition.from == Phase::kConfirm && transition.to == Phase::kRunning) {
    ++outcome_.healed;
    if (before_confirm_ && transition.generation != before_confirm_)
      Break(Promise::kTable, "a healed gap cost a generation");
  }
  if (transition.to == Phase::kRunning) ever_running_ = true;
  if (transition.from == Phase::kEnded) Break(Promise::kTable, "a transition after the end");
}

void Cluster::CheckSpawn(Rank rank, Incarnation incarnation) {
  // One that is started only to save what is held is outside of the budget. Who is lost in DUMP is started anew at
  // once, before the phase changes, so that only the sum tells the two kinds apart there.
  ++(phase_ == Phase::kDump ? rescues_ : spawns_)[rank];
  const int budget = 1 + plan_.policy.max_respawns;
  const int rescues = core_->members()[static_cast<size_t>(rank.value())].rescues;
  if (rescues > 2 || spawns_[rank] > budget || spawns_[rank] + rescues_[rank] > budget + 2)
    Break(Promise::kTable, "rank " + rank.ToString() + " is started beyond its budget");
  if (ended_) Break(Promise::kTable, "a process is started after the end");
  const ProcessPtr before = Newest(rank);
  if (!before || !launchers_.empty()) return;
  if (incarnation <= before->incarnation) Break(Promise::kOneDecider, "incarnations do not grow");
  if (before->alive && !given_up_.count({rank, before->incarnation}))
    Break(Promise::kOneDecider, "rank " + rank.ToString() + " is started while it lives");
}

void Cluster::CheckSend(const Send& send) {
  CheckActs(send);
  const auto* reply = std::get_if<JoinReply>(&send.message);
  if (reply && !reply->accepted) return;
  const auto* order = std::get_if<PhaseOrder>(&send.message);
  // Where all that had a shard at one step are lost, those that live may have to go back to what launchers hold.
  if (order && plan_.gate != GateKind::kOff && !(plan_.policy.adopts && ShardAtRisk()))
    for (const RepairMove& move : order->moves)
      if (!losses_.count(move.destination.value()))
        Break(Promise::kInnocent, "rank " + move.destination.ToString() + ", which nothing struck, needs a repair");
  if (given_up_.count({send.header.rank, send.header.incarnation}))
    Break(Promise::kOneDecider, "incarnation " + send.header.incarnation.ToString() + " of rank " +
                                    send.header.rank.ToString() + " is spoken to after its death");
}

void Cluster::CheckKill(const KillProcess& kill) {
  if (core_->phase() != Phase::kEnded && !losses_.count(kill.rank.value()) && kill.incarnation == Incarnation(1))
    Break(Promise::kInnocent, "rank " + kill.rank.ToString() + ", which nothing struck, is given up: " + kill.reason);
}

void Cluster::CheckWaits() {
  if (!core_->WaitsAreBounded())
    Break(Promise::kBounds, "a wait without a deadline in " + std::string(PhaseName(core_->phase())));
}

void Cluster::CheckProgress() {
  if (!Over() && Now() - last_progress_ > kProgressLimit)
    Break(Promise::kProgress, "nothing moves in " + std::string(PhaseName(core_->phase())) + " for " +
                                  Milliseconds(kProgressLimit) + " ms");
}

void Cluster::CheckCheckpoint(uint64_t step, const Checkpoint& checkpoint) {
  if (hidden_) return;
  const auto broken = [&](const std::string& what) {
    Break(Promise::kCheckpoint, "the checkpoint of step " + std::to_string(step) + " lacks or spoils " + what);
  };
  for (size_t r = 0; r < world_; ++r) {
    const Rank rank(static_cast<int32_t>(r));
    const RankState& expected = reference_.At(step, rank);
    for (const Shard& shard : expected.shards) {
      const auto found = checkpoint.shards.find({shard.layout, replicas_.Holders(shard.layout, rank).front()});
      if (found == checkpoint.shards.end() || found->second != shard.tensors)
        return broken("layout " + std::to_string(shard.layout) + " of rank " + rank.ToString());
    }
    const auto object = checkpoint.objects.find(rank);
    if (object == checkpoint.objects.end() || object->second != expected.object)
      return broken("the object of rank " + rank.ToString());
  }
}

bool Cluster::ShardAtRisk() const {
  return std::any_of(replicas_.shards().begin(), replicas_.shards().end(), [&](const auto& shard) {
    return std::all_of(shard.holders.begin(), shard.holders.end(),
                       [&](Rank r) { return losses_.count(r.value()) > 0; });
  });
}

// Whether its living process, or its launcher, has that shard exactly as it is at `step`, and nothing is known against
// it.
bool Cluster::HoldsWhole(Rank rank, int layout, uint64_t step) {
  const auto is_whole = [&](const RankState& state, const Object* object) {
    const RankState& expected = reference_.At(step, rank);
    const auto shard = [layout](const RankState& of) {
      return std::find_if(of.shards.begin(), of.shards.end(), [layout](const Shard& s) { return s.layout == layout; });
    };
    return shard(state)->tensors == shard(expected)->tensors && object && *object == expected.object;
  };
  if (seated_ && !seated_->lines.count(SeatedNodeOf(rank))) return false;  // it did not return in time
  const auto& member = core_->members()[static_cast<size_t>(rank.value())];
  const ProcessPtr p = Newest(rank);
  const bool lives = p && p->alive && !p->frozen && p->mark == core::StateMark::kWhole && !p->damaged && !p->flipped &&
                     member.incarnation == p->incarnation && !member.needs_repair;
  if (lives && is_whole(p->state, p->objects.Find(step))) return true;
  const auto left = left_.find(rank);
  return left != left_.end() && left->second.held && left->second.held->clean &&
         left->second.held->of > member.doubted && left->second.held->step.value() == step && !left->second.damaged &&
         is_whole(left->second.state, left->second.objects.Find(step));
}

// A run that ends with nothing: no step at which a whole copy of each shard lies anywhere.
void Cluster::CheckNothingHeldIsLost(const RunEnded& ended) {
  const bool saved = ended.text.find("saved step") != std::string::npos;
  if (!plan_.policy.adopts || ended.exit_code == kExitSuccess || saved || !ever_running_ ||
      plan_.policy.save_directory.empty() || nonsense_)
    return;
  // It was tried, or the bits are known to differ.
  for (const char* tried : {"could not be written", "attempts at one incident", "hold different state"})
    if (ended.text.find(tried) != std::string::npos) return;
  for (const auto& member : core_->members())
    if (member.rescues > 0 || member.digest_mismatches > 0) return;
  for (uint64_t step = 0; step <= plan_.steps; ++step)
    if (std::all_of(replicas_.shards().begin(), replicas_.shards().end(), [&](const auto& shard) {
          return std::any_of(shard.holders.begin(), shard.holders.end(),
                             [&](Rank holder) { return HoldsWhole(holder, shard.layout, step); });
        }))
      return Break(Promise::kInnocent, "the run ended with nothing (" + ended.text +
                                           ") although every shard was held at step " + std::to_string(step));
}

void Cluster::CheckSuccess() {
  compared_at_ = 0;  // all are compared at the end
  // But for those that came when their ranks had said their last word, to this controller or to one that it replaced.
  const auto came_late = [this](ProcessPtr p) {
    return !p->core || (!launchers_.empty() && Word(p).step.value() < plan_.steps);
  };
  for (const ProcessPtr p : processes_)
    if (!came_late(p) && !p->damaged) CheckState(p, plan_.steps, "at the end", Promise::kBitIdentical);
  for (uint64_t step = 1; step <= plan_.steps; ++step)
    for (size_t r = 0; r < world_; ++r)
      if (samples_[step][r] != (step - 1) * world_ + r)
        Break(Promise::kSamplesOnce, "sample " + std::to_string((step - 1) * world_ + r) + " was not consumed");
}

// The end's own: success is complete, a resumable end has a checkpoint, and nothing is given up that could have been
// repaired.
void Cluster::CheckEnd() {
  if (!ended_) return Break(Promise::kProgress, "no event is left and the run has not ended");
  outcome_.exit_code = ended_->exit_code;
  outcome_.text = ended_->text;
  const std::string end = "exit " + std::to_string(ended_->exit_code) + " (" + ended_->text + ")";
  const bool shard_at_risk = ShardAtRisk();
  const bool budget_at_risk = std::any_of(losses_.begin(), losses_.end(),
                                          [&](const auto& loss) { return loss.second > plan_.policy.max_respawns; });
  // Without the gate a step that is broken off, in whatever way, may leave the ranks without a common one.
  const bool broken_off = std::any_of(outcome_.struck.begin(), outcome_.struck.end(), [](const auto& struck) {
    const FaultType type = struck.first.second;
    return type == FaultType::kCommError || type == FaultType::kHang || type == FaultType::kThrow;
  });
  const bool gateless = plan_.gate == GateKind::kOff && (broken_off || !losses_.empty());
  const bool can_save = !plan_.policy.save_directory.empty();
  for (const auto& p : all_processes_)
    if (p->alive && !p->frozen) return Break(Promise::kTable, end + " leaves rank " + p->rank.ToString() + " behind");
  switch (ended_->exit_code) {
    case kExitSuccess:
      return CheckSuccess();
    case kExitResumable:
      if (visible_.empty()) return Break(Promise::kCheckpoint, end + " without a checkpoint");
      if (!stop_asked_ && !shard_at_risk && !budget_at_risk && !gateless)
        Break(Promise::kInnocent, end + " although a repair was possible");
      return;
    case kExitStartup:
      if (!start_disturbed_ || ever_running_) Break(Promise::kInnocent, end + " without a fault at the start");
      return;
    default:
      if (stop_asked_ && (!can_save || !ever_running_)) return;
      // One rank that several faults struck at one step is taken for one whose program fails there.
      if (std::any_of(losses_.begin(), losses_.end(), [](const auto& loss) { return loss.second >= 3; }) &&
          ended_->text.find("no fault of the hardware") != std::string::npos)
        return;
      if (nonsense_) return;  // of a checkpoint that is there, for example: that it cannot be read
      if (checkpoint_known_) return Break(Promise::kInnocent, end + " although there is a checkpoint");
      if (can_save && !shard_at_risk && !gateless)
        return Break(Promise::kInnocent, end + " although every shard was held");
      if (!shard_at_risk && !budget_at_risk && !gateless)
        Break(Promise::kInnocent, end + " although a repair was possible");
  }
}

}  // namespace kintsugi::sim
