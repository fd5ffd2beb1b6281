// AgentNews: what a rank has said without being asked, kept for as long as it is true. A lost connection may have taken it
// along, so it is all said again on the next one; what the rank was asked for, the controller asks again.
//
// Threads: none; pure.
// Invariants: what belongs to one generation is forgotten with it; damaged memory is not, until a repair has been proved.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "runtime/core/messages.h"

namespace kintsugi::core {

class AgentNews {
 public:
  const std::optional<Ready>& ready() const { return ready_; }
  void SetReady(Ready ready) { ready_ = std::move(ready); }

  // The first of a generation's faults are kept; they tell the story.
  void AddFault(const FaultReport& fault);
  // Of memory, and no repair has proved that it is mended.
  bool has_damage() const;
  // The digests that are computed now say nothing of faults after this.
  void OnVerify() { verified_faults_ = faults_.size(); }
  // The faults before VERIFY are repaired. Whether those after it leave the state fit to be offered.
  bool OnRollback();

  // What is not as it would have been stays so: told to every controller. The first ones are kept.
  void AddInexact(const std::string& text);

  void EnterGate(Step step);
  // Whether the rank waits at the gate of that step; it does not any more. An answer that comes twice opens no later gate.
  bool LeaveGate(Step step);

  void StandAtSavePoint(const SavePoint& point) { save_point_ = point; }
  // Whether it stood there.
  bool LeaveSavePoint();
  void Finish(const Finished& finished) { finished_ = finished; }
  // Told until the run has gone on, whatever became of the generation that ordered the save.
  void Publish(Published published) { published_ = std::move(published); }
  void OnRunGoesOn() { published_.reset(); }

  // `keep`: the one that counts. False: this snapshot is under way or made already, and snapshots() has what is known of it.
  bool BeginSnapshot(Step step, Step keep);
  bool IsSnapshot(Step step) const { return snapshot_step_ == step; }
  void AddSnapshot(const SnapshotReport& report) { snapshots_.push_back(report); }
  const std::vector<SnapshotReport>& snapshots() const { return snapshots_; }

  void OnGeneration();
  // `keep`: as with BeginSnapshot.
  void OnReleased(Step keep);

  // All of it, in the order in which it is to be said. `locked`: nothing that only a running loop says.
  std::vector<AgentMessage> Again(bool locked) const;

 private:
  void KeepSnapshots();
  void KeepOnly(Step counts);

  std::optional<Published> published_;
  std::optional<Ready> ready_;
  std::vector<FaultReport> faults_;
  std::vector<Inexact> inexact_;
  size_t verified_faults_ = 0;  // of these: known when the digests were taken
  std::optional<Finished> finished_;
  std::optional<SavePoint> save_point_;
  std::optional<Step> gate_;  // the newest one that it has entered
  bool at_gate_ = false;      // ... and has not passed
  std::optional<Step> snapshot_step_;
  std::vector<SnapshotReport> snapshots_;  // on that step
  std::vector<SnapshotReport> kept_;       // whole copies of the one that counts, and of one of which that is not known
  Step counts_;                            // 0: none does
};

}  // namespace kintsugi::core
