// The run's loop, its time and its log.
#include <array>

#include "runtime/sim/elections.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

ReplicaMap MapOf(const Plan& plan) { return ReplicaMap::Build(plan.policy.world_size, plan.claims).value(); }

// Longer than any sequence of deadlines that the faults of a plan can use up, on top of the steps themselves.
constexpr Duration kHang = 900s;

}  // namespace

std::string_view PromiseName(Promise promise) {
  constexpr std::array<std::string_view, 12> kNames = {"none",        "same_step",  "bit_identical", "update_once",
                                                       "one_decider", "checkpoint", "samples_once",  "progress",
                                                       "bad_input",   "innocent",   "table",         "bounds"};
  return kNames[static_cast<size_t>(promise)];
}

std::string Violation::ToString() const {
  return "promise " + std::to_string(static_cast<int>(promise)) + " (" + std::string(PromiseName(promise)) +
         "): " + text;
}

Cluster::Cluster(Plan plan, LogFunction log, Hook* hook)
    : plan_(std::move(plan)),
      log_(std::move(log)),
      hook_(hook),
      world_(static_cast<size_t>(plan_.policy.world_size)),
      random_(plan_.seed ^ 0xC0FFEE),
      replicas_(MapOf(plan_)),
      reference_(replicas_, plan_.policy.world_size),
      scheduler_(TimePoint(100s)),
      start_(scheduler_.now()),
      core_(std::make_unique<ControllerCore>(plan_.policy, Term{1, 1})),
      processes_(world_, nullptr),
      links_(world_, nullptr),
      roads_(world_),
      next_(world_),
      last_progress_(start_) {
  for (size_t r = 0; r < world_; ++r) partners_.push_back(replicas_.Partners(Rank(static_cast<int32_t>(r))));
  for (const PlannedFault& fault : plan_.faults) faults_.push_back({fault});
}

Duration Cluster::Between(int64_t low_us, int64_t high_us) {
  return std::chrono::microseconds(low_us +
                                   static_cast<int64_t>(random_.Below(static_cast<uint64_t>(high_us - low_us))));
}

Duration Cluster::Share(int low_percent, int high_percent) const {
  const int64_t percent = plan_.step_time.count() / 100;
  return Duration(low_percent * percent +
                  static_cast<int64_t>(random_.Below(static_cast<uint64_t>((high_percent - low_percent) * percent))));
}

void Cluster::Log(const std::string& text) {
  if (!log_) return;
  const std::string at = Milliseconds(Now() - start_);
  std::string line = std::string(at.size() < 12 ? 12 - at.size() : 0, ' ') + at + "  ";
  // Handlers may say anything; a log is text.
  for (const char c : text) line += c >= ' ' && c <= '~' ? c : '?';
  log_(line);
}

void Cluster::Break(Promise promise, const std::string& text) {
  outcome_.violations.push_back({promise, text});
  Log("VIOLATION: " + outcome_.violations.back().ToString());
}

Outcome Cluster::Run() {
  Log("plan: seed " + std::to_string(plan_.seed) + ": " + plan_.ToString());
  for (size_t i = 0; i < faults_.size(); ++i)
    if (faults_[i].plan.at) In(*faults_[i].plan.at, [this, i] { Strike(faults_[i]); });
  BeginElections();
  const std::vector<ControllerAction> begun = core_->Start(Now());
  if (hook_) hook_->OnStart(Now(), begun);
  for (const ControllerAction& action : begun) Act(action);
  Answer(store_.Advance(core_->generation()));
  // Where no launcher starts them, somebody else does.
  for (size_t r = 0; r < world_ && !plan_.policy.can_spawn; ++r)
    StartProcess(Rank(static_cast<int32_t>(r)), Incarnation());
  In(plan_.tick, [this] { launchers_.empty() ? Tick() : TickSeats(); });
  const TimePoint hang = start_ + kHang + 2 * static_cast<int64_t>(plan_.steps) * plan_.step_time;
  try {
    while (!scheduler_.empty() && outcome_.violations.empty()) {
      scheduler_.RunNext();
      if (Now() > hang) Break(Promise::kProgress, "the run hangs in " + std::string(PhaseName(core_->phase())));
    }
  } catch (const std::exception& e) {
    Break(Promise::kTable, std::string("exception: ") + e.what());
  }
  if (outcome_.violations.empty()) launchers_.empty() ? CheckEnd() : CheckEndElected();
  outcome_.took = Now() - start_;
  outcome_.incidents += core_->incidents();
  return outcome_;
}

void Cluster::Tick() {
  Feed(core::Tick{});
  CheckProgress();
  if (!ended_) In(plan_.tick, [this] { Tick(); });
}

}  // namespace kintsugi::sim
