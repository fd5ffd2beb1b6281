#include "runtime/core/checkpoint_writer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/save_balance.h"

namespace kintsugi::core {
namespace {

// Of a shard, as its holder registered it.
uint64_t BytesOf(const RegistrySummary& registry, int layout) {
  uint64_t bytes = 0;
  for (const TensorSummary& tensor : registry.tensors) {
    if (tensor.layout != layout) continue;
    uint64_t elements = 1;
    for (const int64_t length : tensor.local_shape) elements *= static_cast<uint64_t>(length);
    if (tensor.flattened_range)
      elements = static_cast<uint64_t>(tensor.flattened_range->stop - tensor.flattened_range->start);
    bytes += elements * DTypeSize(tensor.dtype);
  }
  return bytes;
}

// Another writer's failure has taken the folder away from under this one.
bool IsEcho(StatusCode code) { return code == StatusCode::kCancelled; }

}  // namespace

void CheckpointWriter::Start(Step step, const IncidentFacts& facts) {
  board_.SetSave(SaveState::kWriting);
  step_ = step;
  failed_ = false;
  echoes_only_ = false;
  std::map<Rank, std::vector<SaveEntry>> work;
  const auto bytes_of = [this](Rank holder, int layout) { return BytesOf(board_.At(holder).registry, layout); };
  std::vector<SaveAssignment> plan = BalanceSave(PlanSave(facts, board_.replicas()), facts, bytes_of);
  KINTSUGI_CHECK(plan.size() == board_.replicas().shards().size(),
                 "the checkpoint of step " + step.ToString() + " would lack a shard, or have it twice");
  plan = StoreOwnObjects(std::move(plan), facts);
  for (SaveAssignment& assignment : plan) work[assignment.writer].push_back(std::move(assignment.entry));
  writers_.clear();
  for (const auto& [rank, entries] : work) writers_.push_back(rank);
  KINTSUGI_CHECK(!writers_.empty(), "nobody writes the checkpoint of step " + step.ToString());
  const Duration limit = board_.policy.RepairLimit();
  board_.SetSaveDeadline(board_.now() + limit + board_.policy.AnswerSlack());
  for (Rank writer : writers_) {
    KINTSUGI_CHECK(!board_.At(writer).needs_repair || board_.plan.Adopts(writer),
                   "rank " + writer.ToString() + " is to write a shard, and needs a repair itself");
    board_.Ask(writer, PhaseOrder{.phase = Phase::kDump,
                                  .step = step,
                                  .limit = limit,
                                  .partners = writers_,
                                  .entries = std::move(work[writer]),
                                  .directory = board_.policy.save_directory});
  }
}

CheckpointWriter::Answer CheckpointWriter::Take(Rank rank, const PhaseDone& done, bool is_last) {
  KINTSUGI_CHECK(Writes(board_.save()), "rank " + rank.ToString() + " has written, and nothing is saved");
  Member& member = board_.At(rank);
  const Phase expected = board_.save() == SaveState::kWriting ? Phase::kDump : Phase::kRename;
  if (!member.waiting || done.phase != expected) return Answer::kNotAwaited;
  board_.Heard(rank, expected);
  if (done.code != StatusCode::kOk) {
    const std::string text = "the checkpoint of step " + step_.ToString() + " could not be written by rank " +
                             rank.ToString() + ": " + done.text;
    board_.Note(rank, text);
    const bool echo = IsEcho(done.code);
    if (!failed_ || (echoes_only_ && !echo)) failure_ = {step_, false, rank, text};
    echoes_only_ = echo && (!failed_ || echoes_only_);
    member.save_failed = member.save_failed || !echo;
    failed_ = true;
    if (is_last && !echo) return Answer::kLastFailed;
  }
  // A rank that writes is waited for, also where the save has failed already.
  if (!board_.NobodyWaits()) return Answer::kOthersToCome;
  const bool published = board_.save() == SaveState::kRenaming && !failed_;
  if (published) {
    OnPublished(step_, board_.policy.save_directory);
    board_.Act(SaveSettled{step_, true, rank, done.text});
  }
  if (published || failed_) return Answer::kEnded;
  AskToPublish();
  return Answer::kOthersToCome;
}

void CheckpointWriter::AskToPublish() {
  KINTSUGI_CHECK(!failed_ && board_.NobodyWaits(),
                 "the checkpoint of step " + step_.ToString() + " is published before it is written whole");
  if (board_.phase() == Phase::kDump) board_.SetPhase(Phase::kRename, "all parts are written");
  board_.SetSave(SaveState::kRenaming);
  const Duration limit = board_.policy.RepairLimit();
  board_.SetSaveDeadline(board_.now() + limit + board_.policy.AnswerSlack());
  const auto fit =
      std::find_if(writers_.begin(), writers_.end(), [this](Rank rank) { return !board_.At(rank).save_failed; });
  board_.Ask(fit == writers_.end() ? writers_.front() : *fit, PhaseOrder{.phase = Phase::kRename,
                                                                         .step = step_,
                                                                         .limit = limit,
                                                                         .partners = writers_,
                                                                         .directory = board_.policy.save_directory,
                                                                         .moves_latest = !board_.majority.minority()});
}

void CheckpointWriter::Cancel() {
  if (Writes(board_.save())) step_ = Step();
}

void CheckpointWriter::OnPublished(Step step, const std::string& directory) {
  if (checkpoints_.Publish({step, directory})) board_.Act(CheckpointReady{step, directory});
}

}  // namespace kintsugi::core
