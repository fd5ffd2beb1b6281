#include "runtime/launcher/run/run_account.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/controller/incident_line.h"
#include "runtime/launcher/run/run_history.h"

namespace kintsugi {
namespace {

// Timings of single steps are kept for pictures; a long run keeps the newest.
constexpr size_t kStepTimingsMax = 1 << 16;
// As many as a controller keeps.
constexpr size_t kCheckpointsKept = 16;

void Count(const core::IncidentRecord& record, TimePoint now, IncidentTally* tally) {
  ++tally->by_cause[{record.signal, record.rung}];
  // The first one began before anything was wrong.
  for (const core::PhaseSpan& span : record.phases)
    tally->in_phase[span.phase] += span.end - std::min(span.end, std::max(span.begin, record.detected_at));
  tally->down.Observe(record.resumed_at.value_or(now) - record.fault_at);
  tally->steps_lost += StepsLost(record);
  tally->bytes_streamed += record.bytes_moved;
}

// Those of one that are not in the other.
std::vector<Rank> Without(const core::Crew& one, const core::Crew& other) {
  std::vector<Rank> ranks;
  for (Rank rank : one.ranks())
    if (!other.Has(rank)) ranks.push_back(rank);
  return ranks;
}

// Of a run that is taken over. A change is told before the pulse that has it, and the leader may have been lost between
// the two.
core::Crew CrewOf(int seats, const std::vector<Rank>& told, const std::vector<wire::KeptWorld>& worlds) {
  const Result<core::Crew> pulsed = core::Crew::Of(seats, told);
  const core::Crew crew = pulsed.ok() ? *pulsed : core::Crew(seats);
  if (worlds.empty()) return crew;
  std::set<Rank> ranks(crew.ranks().begin(), crew.ranks().end());
  for (Rank rank : worlds.back().left) ranks.erase(rank);
  ranks.insert(worlds.back().came.begin(), worlds.back().came.end());
  const Result<core::Crew> changed = core::Crew::Of(seats, {ranks.begin(), ranks.end()});
  return changed.ok() ? *changed : crew;
}

}  // namespace

RunAccount::RunAccount(const core::Policy& policy, Generation running, TimePoint now, const wire::RunSoFar& before,
                       const KeptHistory& kept)
    : pause_asked_(policy.pause_asked),
      ranks_wanted_(policy.ranks_wanted),
      crew_(CrewOf(policy.world_size, before.crew, kept.worlds)),
      began_(policy.began),
      running_(running),
      checkpoints_(policy.checkpoints),
      views_(static_cast<size_t>(policy.world_size)),
      times_(now, before.time) {
  if (!policy.resume_directory.empty() && !policy.resume_by_trainer && !policy.takes_over)
    checkpoints_.push_back({policy.resume_step, policy.resume_directory});
  result_.begin = now - before.time.total;
  result_.saves.made = before.saves_made;
  result_.saves.failed = before.saves_failed;
  result_.inexact.count = before.inexact;
  result_.incidents = FromKept(kept.incidents, result_.begin);
  for (const wire::KeptLife& life : kept.lives) result_.lives.push_back(FromKept(life, result_.begin));
  for (const wire::KeptStep& step : kept.steps) result_.steps.push_back(FromKept(step, result_.begin));
  for (const wire::KeptWorld& world : kept.worlds) result_.worlds.push_back(FromKept(world, result_.begin));
  worlds_seen_ = result_.worlds.size();
  lives_before_ = life_news_ = result_.lives.size();
  steps_timed_ = result_.steps.size();
  for (const IncidentResult& incident : result_.incidents) {
    Count(incident.record, now, &tally_);
    fired_.AddKnown(incident);
  }
  KINTSUGI_CHECK(result_.incidents.empty() || result_.incidents.back().record.id <= policy.incidents_before,
                 "an incident is kept that nobody counted");
  result_.incidents_before = policy.incidents_before - result_.incidents.size();
  incident_news_ = result_.incidents.size();
  if (!checkpoints_.empty()) result_.saves.newest = {checkpoints_.back(), now};
}

RunAccount::RankView& RunAccount::View(Rank rank) {
  KINTSUGI_CHECK(rank.value() >= 0 && static_cast<size_t>(rank.value()) < views_.size(),
                 "rank " + rank.ToString() + " is outside the world");
  return views_[static_cast<size_t>(rank.value())];
}

void RunAccount::Start() {
  KINTSUGI_CHECK(!started_ && !ended_, "a run that has started, or ended, starts");
  started_ = true;
}

void RunAccount::AskStop(TimePoint now) {
  if (!stop_asked_) stop_asked_ = now;
}

void RunAccount::End(const core::RunEnded& ended) {
  KINTSUGI_CHECK(!ended_, "a run that has ended ends: " + ended.text);
  ended_ = true;
  awaits_ends_ = ended.exit_code == core::kExitSuccess;
  result_.exit_code = ended.exit_code;
  result_.text = ended.text;
  result_.final_digest = ended.final_digest;
  result_.committed = ended.committed;
}

void RunAccount::OnStarting(Rank rank, Incarnation incarnation, TimePoint now) {
  RankView& view = View(rank);
  view = {.left = view.left};
  ++life_news_;
  view.life = KnownLife(rank, incarnation);
  // Of those that it follows nobody says any more how they ended: their host may be gone.
  for (size_t i = 0; i < lives_before_; ++i) {
    RankLife& life = result_.lives[i];
    if (life.rank == rank && !life.end && view.life != i) life.end = now, life.cause = "lost with the leader before";
  }
  if (view.life) return;
  view.life = result_.lives.size();
  result_.lives.push_back({rank, incarnation, now, std::nullopt, ""});
}

std::optional<size_t> RunAccount::KnownLife(Rank rank, Incarnation incarnation) const {
  for (size_t i = 0; i < lives_before_; ++i) {
    const RankLife& life = result_.lives[i];
    if (life.rank == rank && life.incarnation == incarnation && !life.end) return i;
  }
  return std::nullopt;
}

void RunAccount::OnPage(Rank rank, const PageView& page) {
  MarkStep(rank, page);
  View(rank).page = page;
}

void RunAccount::OnFired(const FiredInjection& fired) {
  fired_.Add(fired);
  TimePoint since;
  for (IncidentResult& incident : result_.incidents) {
    const bool known = incident.injected.has_value();
    fired_.Attribute(&incident, since);
    if (incident.injected && !known) ++incident_news_;
    since = incident.record.resumed_at.value_or(since);
  }
}

void RunAccount::OnExited(Rank rank, const WorkerEnd& end) {
  const std::optional<size_t> life = std::exchange(View(rank).life, std::nullopt);
  if (!life) return;
  KINTSUGI_CHECK(*life < result_.lives.size() && !result_.lives[*life].end, "a life ends twice: " + end.cause);
  result_.lives[*life].end = end.at;
  result_.lives[*life].cause = end.cause;
  ++life_news_;
  View(rank).not_struck = end.not_struck;
  if (awaits_ends_ && end.failed() && !View(rank).left)
    Spoil("after all loops were over, rank " + rank.ToString() + " " + end.cause);
}

void RunAccount::Spoil(const std::string& why, int exit_code) {
  KINTSUGI_CHECK(awaits_ends_, "a run is spoilt that does not wait for its processes: " + why);
  if (result_.exit_code != core::kExitSuccess) return;  // the first one tells
  result_.exit_code = exit_code;
  result_.text = why;
}

void RunAccount::Conclude(bool must_strike) {
  if (!awaits_ends_) return;
  if (const std::vector<std::string> missed = NotStruck(); must_strike && !missed.empty())
    Spoil("fault " + missed.front() + " never struck" +
              (missed.size() > 1 ? ", and " + std::to_string(missed.size() - 1) + " more" : "") +
              ": the run went on without coming to that place",
          core::kExitStartup);
  awaits_ends_ = false;
}

std::vector<std::string> RunAccount::NotStruck() const {
  std::vector<std::string> all;
  for (const RankView& view : views_) all.insert(all.end(), view.not_struck.begin(), view.not_struck.end());
  return all;
}

std::vector<Rank> RunAccount::Running() const {
  std::vector<Rank> running;
  for (size_t r = 0; r < views_.size(); ++r)
    if (views_[r].life && !views_[r].left) running.push_back(Rank(static_cast<int32_t>(r)));
  return running;
}

void RunAccount::MarkStep(Rank rank, const PageView& page) {
  const uint64_t step = UnpackProgress(page.progress).step;
  RankView& view = View(rank);
  if (step == view.step) return;
  times_.OnBegan(Step(step), page.progress_at);
  step_times_.OnBegan(Step(step), page.progress_at);
  if (view.step > 0 && page.progress_at > view.step_began) {
    auto& steps = result_.steps;
    if (steps.size() == kStepTimingsMax) steps.erase(steps.begin(), steps.begin() + kStepTimingsMax / 2);
    steps.push_back({rank, Step(view.step), view.step_began, page.progress_at});
    ++steps_timed_;
  }
  view.step = step;
  view.step_began = page.progress_at;
}

void RunAccount::OnTransition(const core::Transition& t, Step goes_on_after, TimePoint now) {
  if (t.to != core::Phase::kRunning) return;
  began_ = true;
  running_ = t.generation;
  if (t.from == core::Phase::kConfirm) return;
  times_.OnResuming(goes_on_after, now);
  step_times_.OnResuming();
}

const IncidentResult& RunAccount::OnIncident(const core::IncidentRecord& record, TimePoint now) {
  KINTSUGI_CHECK(result_.incidents.empty() || record.id > result_.incidents.back().record.id,
                 "incident " + std::to_string(record.id) + " is told twice, or after a later one");
  IncidentResult incident{record, std::nullopt};
  fired_.Attribute(&incident, result_.incidents.empty()
                                  ? TimePoint()
                                  : result_.incidents.back().record.resumed_at.value_or(TimePoint()));
  const core::IncidentRecord& told = incident.record;
  // A gap that healed stopped nobody.
  if (told.rung != Rung::kResume) times_.OnIncident(told.fault_at, told.resumed_at.value_or(now));
  Count(told, now, &tally_);
  result_.incidents.push_back(std::move(incident));
  ++incident_news_;
  return result_.incidents.back();
}

void RunAccount::OnCheckpoint(const core::Checkpoint& checkpoint, TimePoint now) {
  std::erase(checkpoints_, checkpoint);
  if (checkpoints_.size() >= kCheckpointsKept) checkpoints_.erase(checkpoints_.begin());
  checkpoints_.push_back(checkpoint);
  result_.saves.OnMade(checkpoint, now);
}

std::string RunAccount::OnSave(const core::SaveSettled& settled, TimePoint now) {
  return settled.saved ? result_.saves.OnRemark(settled) : result_.saves.OnFailed(settled, now);
}

void RunAccount::OnInexact(Rank rank, const std::string& text) {
  InexactNotes& notes = result_.inexact;
  if (notes.first.size() < InexactNotes::kKept) notes.first.push_back({rank, text});
  ++notes.count;
}

void RunAccount::OnCrew(const core::Crew& crew, uint64_t incident, Step step, TimePoint now) {
  WorldChange change{now, step, static_cast<int>(crew.size()), Without(crew_, crew), Without(crew, crew_), incident};
  if (!change.left.empty() || !change.came.empty()) {
    if (result_.worlds.size() == wire::KeepSpans::kWorldsMax) result_.worlds.erase(result_.worlds.begin());
    result_.worlds.push_back(std::move(change));
    ++worlds_seen_;
  }
  crew_ = crew;
  for (size_t r = 0; r < views_.size(); ++r) views_[r].left = !crew.Has(Rank(static_cast<int32_t>(r)));
}

void RunAccount::OnHang(const core::Blame& blame, TimePoint now) { hang_ = {blame, now}; }

void RunAccount::OnStandstill(bool at_save_point, bool paused, TimePoint now) {
  times_.OnSaving(!paused && at_save_point, now);
  times_.OnPaused(paused, now);
  if (paused) step_times_.OnResuming();  // the step before is not timed to the one after
}

wire::RunSoFar RunAccount::ForNext(TimePoint now) const {
  return {.incidents = result_.incidents_before + result_.incidents.size(),
          .pause_asked = pause_asked_,
          .time = times_.Account(now),
          .saves_made = result_.saves.made,
          .saves_failed = result_.saves.failed,
          .inexact = result_.inexact.count,
          .ranks_wanted = ranks_wanted_,
          .crew = crew_.Told()};
}

void RunAccount::LookAt(RunStatus* status) const {
  KINTSUGI_CHECK(status->ranks.size() <= views_.size(), "more ranks are seen than the world has");
  status->over = tally_;
  status->hang = hang_;
  status->steps = step_times_;
  status->time = times_.Account(status->at, status->standing_since);
  status->saves = result_.saves;
  status->worlds = result_.worlds;
  for (RankStatus& seen : status->ranks) {
    const RankView& view = views_[static_cast<size_t>(seen.rank.value())];
    seen.step = view.step;
    if (!view.page) continue;
    seen.gate = core::GateWord::Unpack(view.page->gate_word);
    seen.phase = UnpackProgress(view.page->progress).phase;
  }
}

void RunAccount::Fill(RunResult* result, TimePoint now) const {
  KINTSUGI_CHECK(now >= result_.begin, "a run ends before it begins");
  result->asked = stop_asked_.has_value();
  result->end = now;
  result->fired = fired_.All();
  result->time = times_.Account(now);
}

RunResult RunAccount::SoFar() const {
  RunResult result;
  result.exit_code = result_.exit_code;
  result.text = result_.text;
  result.committed = result_.committed;
  result.incidents = result_.incidents;
  result.incidents_before = result_.incidents_before;
  result.lives = result_.lives;
  result.worlds = result_.worlds;
  result.saves = result_.saves;
  result.inexact = result_.inexact;
  result.begin = result_.begin;
  return result;
}

RunResult RunAccount::Take(TimePoint now) {
  Fill(&result_, now);
  result_.not_struck = NotStruck();
  return std::move(result_);
}

}  // namespace kintsugi
