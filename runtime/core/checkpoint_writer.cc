#include "runtime/core/checkpoint_writer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/save_balance.h"

namespace kintsugi::core {
namespace {

// Another writer's failure has taken the folder away from under this one.
bool IsEcho(StatusCode code) { return code == StatusCode::kCancelled; }

}  // namespace

void CheckpointWriter::Start(Step step, const IncidentFacts& facts) {
  board_.SetSave(SaveState::kWriting);
  step_ = step;
  failed_ = false;
  echoes_only_ = false;
  std::map<Rank, std::vector<SaveEntry>> work;
  const auto bytes_of = [this](Rank holder, int layout) { return RegisteredBytes(board_.At(holder).registry, layout); };
  std::vector<SaveAssignment> plan = BalanceSave(PlanSave(facts, board_.replicas()), facts, bytes_of);
  KINTSUGI_CHECK(plan.size() == board_.replicas().shards().size(),
                 "the checkpoint of step " + step.ToString() + " would lack a shard, or have it twice");
  plan = StoreOwnObjects(std::move(plan), facts);
  bytes_ = 0;
  for (const SaveAssignment& assignment : plan) bytes_ += bytes_of(assignment.writer, assignment.entry.layout);
  for (SaveAssignment& assignment : plan) work[assignment.writer].push_back(std::move(assignment.entry));
  writers_.clear();
  for (const auto& [rank, entries] : work) writers_.push_back(rank);
  KINTSUGI_CHECK(!writers_.empty(), "nobody writes the checkpoint of step " + step.ToString());
  const Duration limit = BeginWait();
  for (Rank writer : writers_) {
    KINTSUGI_CHECK(!board_.At(writer).trust.needs_repair() || board_.plan.Adopts(writer),
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
  const Duration limit = BeginWait();
  const auto fit =
      std::find_if(writers_.begin(), writers_.end(), [this](Rank rank) { return !board_.At(rank).save_failed; });
  board_.Ask(fit == writers_.end() ? writers_.front() : *fit, PhaseOrder{.phase = Phase::kRename,
                                                                         .step = step_,
                                                                         .limit = limit,
                                                                         .partners = writers_,
                                                                         .directory = board_.policy.save_directory,
                                                                         .moves_latest = !board_.majority.minority()});
}

Duration CheckpointWriter::BeginWait() {
  began_ = board_.now();
  const Duration limit = Limit();
  board_.SetSaveDeadline(began_ + limit + board_.policy.AnswerSlack());
  return limit;
}

// In a grace period nobody can wait for a limit that leaves no time for another attempt: a writer that takes far longer
// than its bytes need is stopped once, while it lasts. Where the bytes may need what is left of it, they have it.
Duration CheckpointWriter::Limit() const {
  const Policy& policy = board_.policy;
  if (ran_out_ || bytes_ == 0) return policy.RepairLimit();
  const Duration limit = policy.RepairLimit(bytes_);
  if (!board_.course.leaving) return limit;
  const Duration soon = std::min(policy.HandlerLimit(), policy.grace / 4) + Policy::TimeToMove(bytes_);
  const Duration to_stop = policy.grace / 4 + policy.grace / 8 + policy.AnswerSlack();  // as Halt has it
  const Duration again = Policy::TimeToMove(bytes_) + policy.grace / 8;
  return board_.now() + soon + to_stop + again <= board_.course.leave_by ? std::min(soon, limit) : limit;
}

void CheckpointWriter::Hurry() {
  if (Writes(board_.save()))
    board_.SetSaveDeadline(std::min(board_.save_deadline(), board_.now() + Limit() + board_.policy.AnswerSlack()));
}

std::string CheckpointWriter::RanOut() {
  ran_out_ = true;
  std::string late;
  for (Rank rank : board_.members.Where([](const Member& m) -> bool { return m.waiting; }))
    late += (late.empty() ? "" : ", ") + rank.ToString();
  return "the checkpoint of step " + step_.ToString() + " was not " +
         (board_.save() == SaveState::kWriting ? "written" : "published") + " within " +
         std::to_string(static_cast<int>(ToMilliseconds(board_.now() - began_))) + " ms by rank " + late;
}

void CheckpointWriter::Cancel() {
  if (Writes(board_.save())) step_ = Step();
}

void CheckpointWriter::OnPublished(Step step, const std::string& directory) {
  if (checkpoints_.Publish({step, directory})) board_.Act(CheckpointReady{step, directory});
}

}  // namespace kintsugi::core
