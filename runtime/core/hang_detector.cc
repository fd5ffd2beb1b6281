#include "runtime/core/hang_detector.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// A tick that comes later than this says that we were asleep.
constexpr Duration kTickMax = std::chrono::milliseconds(500);

// How often all ranks are looked at.
constexpr Duration kLookEvery = std::chrono::milliseconds(100);

std::string Tenths(Duration duration) {
  const int64_t tenths = duration.count() / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string PlaceName(const Progress& place) {
  std::string name(place.phase ? TrainPhaseName(*place.phase) : "no phase");
  name += " of step " + std::to_string(place.step);
  if (place.activity != Activity::kNone) name += " (" + std::string(ActivityName(place.activity)) + ")";
  return name;
}

// Whoever stands still at one step gets so many times the limit the next time there.
constexpr int kGrowth = 8;

// The step is done; what comes before the next one is the trainer's, and nothing is known of it.
bool IsBehindCommit(const Progress& place) {
  return place.phase == TrainPhase::kParamSync || place.phase == TrainPhase::kBetween;
}

// Where only the trainer knows what takes so long.
bool MayBeOwnCode(const Progress& place) { return place.phase != TrainPhase::kGate && IsPartOfStep(place.activity); }

// Phases are numbered in the order in which a step passes them; none comes before the first.
std::pair<uint64_t, int> OrderOf(const Progress& place) {
  return {place.step, place.phase ? static_cast<int>(*place.phase) : 0};
}

TrainPhase PhaseOf(GateState state) {
  switch (state) {
    case GateState::kAtGate:
      return TrainPhase::kGate;
    case GateState::kUpdating:
    case GateState::kTorn:
      return TrainPhase::kUpdate;
    case GateState::kCommitted:
      break;
  }
  return TrainPhase::kParamSync;
}

}  // namespace

bool IsInStep(const Progress& place) { return IsPartOfStep(place.activity) && !IsBehindCommit(place); }

Progress PlaceOf(uint64_t progress_word, GateWord word) {
  Progress place = UnpackProgress(progress_word);
  if (place.phase == TrainPhase::kGate && word.step.value() + 1 == place.step && word.state == GateState::kCommitted)
    place.phase = TrainPhase::kGradientSync;
  Progress gate{word.step.value(), PhaseOf(word.state), place.activity,
                place.step == word.step.value() ? place.collectives : 0};
  return OrderOf(place) < OrderOf(gate) && word.step.value() > 0 ? gate : place;
}

std::string Hang::ToString() const {
  const bool every = all && waiting.empty();
  std::string text = every ? "every rank" : ranks.size() == 1 ? "rank " : "ranks ";
  constexpr size_t kNamed = 4;
  for (size_t i = 0; !every && i < std::min(kNamed, ranks.size()); ++i)
    text += (i > 0 ? ", " : "") + ranks[i].ToString();
  if (!every && ranks.size() > kNamed) text += " and " + std::to_string(ranks.size() - kNamed) + " more";
  text += " stood still for " + Tenths(still) + " in " + PlaceName(place);
  if (step_time) text += "; a step takes " + Tenths(*step_time);
  if (!all) text += "; others wait in " + PlaceName(furthest);
  for (size_t i = 0; i < std::min(kNamed, waiting.size()); ++i)
    text += "; rank " + waiting[i].rank.ToString() + " waits in " + PlaceName(waiting[i].at);
  if (waiting.size() > kNamed) text += " and " + std::to_string(waiting.size() - kNamed) + " more";
  if (!why.empty()) return text + ": " + why;
  if (MayBeOwnCode(place))
    text += "; where this is code that takes long, run.do or run.activity (Agent::BeginActivity) announces it";
  return text;
}

std::string Hang::ShortOfText() const {
  KINTSUGI_CHECK(!short_of.empty() && !ranks.empty(), "nobody left out a collective");
  const Place& first = short_of.front();
  std::string text = "rank " + first.rank.ToString() + " came to the end of step " + std::to_string(place.step) +
                     " with " + std::to_string(first.at.collectives) + " collectives, rank " +
                     ranks.front().ToString() + " with " + std::to_string(place.collectives);
  if (short_of.size() > 1) text += "; " + std::to_string(short_of.size() - 1) + " more ranks as the first";
  return text;
}

HangDetector::Watched& HangDetector::At(Rank rank) {
  KINTSUGI_CHECK(rank.value() >= 0 && static_cast<size_t>(rank.value()) < ranks_.size(),
                 "the place of rank " + rank.ToString() + ", which is outside the world");
  return ranks_[static_cast<size_t>(rank.value())];
}

void HangDetector::Start(TimePoint now, std::optional<Step> step) {
  started_ = now;
  started_from_ = step;
  for (Watched& watched : ranks_) {
    watched.disturbed = false;
    watched.moved = now;
    watched.step_began.reset();
    watched.first_step = true;
    watched.idle = false;
  }
  last_tick_ = now;
}

void HangDetector::OnPlace(Rank rank, const Progress& place, TimePoint now) {
  Watched& watched = At(rank);
  if (watched.place == place) return;
  if (started_from_ && watched.first_step && !watched.disturbed && place.step > started_from_->value() + 1)
    longest_first_ = std::max(longest_first_.value_or(now - started_), now - started_);
  if (watched.place.step != place.step) {
    EndStep(watched, std::max(place.step, watched.place.step) - watched.place.step, now);
    watched.step_began = now;
  }
  watched.collectives_most = std::max(watched.collectives_most, place.collectives);
  // A step with something else in it says nothing about steps.
  if (!IsPartOfStep(place.activity)) watched.step_began.reset(), watched.disturbed = true;
  watched.place = place;
  watched.moved = now;
}

// Of steps shorter than a beat only some are seen: they share the time between two that were.
void HangDetector::EndStep(Watched& watched, uint64_t steps, TimePoint now) {
  if (!watched.step_began) return;  // the first step of a start was not seen from its beginning
  if (steps > 0) samples_[sample_count_++ % kSamplesMax] = (now - *watched.step_began) / static_cast<int64_t>(steps);
  watched.first_step = false;
  watched.step_began.reset();
}

void HangDetector::OnIdle(Rank rank, TimePoint now) {
  EndStep(At(rank), 1, now);
  At(rank).idle = true;
}

void HangDetector::OnActive(Rank rank, TimePoint now) {
  At(rank).idle = false;
  At(rank).moved = now;
}

std::optional<Duration> HangDetector::step_time() const {
  if (sample_count_ < kLearntMin) return std::nullopt;
  auto sorted = samples_;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(std::min(sample_count_, kSamplesMax));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

Duration HangDetector::Limit() const {
  const auto learnt = step_time();
  return learnt ? Within(*learnt) : limits_.activity;
}

Duration HangDetector::Within(Duration learnt) const {
  const Duration wanted(static_cast<int64_t>(limits_.factor * static_cast<double>(learnt.count())));
  return std::clamp(wanted, limits_.least, std::max(limits_.least, limits_.most));
}

Duration HangDetector::LimitOf(const Watched& watched, Duration limit) const {
  return IsInStep(watched.place) && sample_count_ >= kLearntMin ? StepLimitOf(watched, limit) : limits_.activity;
}

std::optional<Duration> HangDetector::StepLimit(Rank rank) const {
  KINTSUGI_CHECK(rank.value() >= 0 && static_cast<size_t>(rank.value()) < ranks_.size(), "no such rank");
  if (limits_.factor <= 0 || sample_count_ < kLearntMin) return std::nullopt;
  return StepLimitOf(ranks_[static_cast<size_t>(rank.value())], Limit());
}

Duration HangDetector::StepLimitOf(const Watched& watched, Duration limit) const {
  if (!watched.first_step) return Grown(watched.place.step, limit);
  if (!longest_first_) return limits_.first > Duration() ? limits_.first : std::max(limits_.most, limits_.least);
  return Grown(watched.place.step, std::max(limit, Within(*longest_first_)));
}

Duration HangDetector::Grown(uint64_t step, Duration limit) const {
  for (int i = 0; i < grown_ && step == grown_step_ && limit < limits_.most; ++i)
    limit = std::min(limit * kGrowth, limits_.most);
  return limit;
}

void HangDetector::Grow(uint64_t step) {
  grown_ = step == grown_step_ ? grown_ + 1 : 1;
  grown_step_ = step;
}

bool HangDetector::IsBusy(Rank rank, TimePoint since, TimePoint now) const {
  KINTSUGI_CHECK(rank.value() >= 0 && static_cast<size_t>(rank.value()) < ranks_.size(), "no such rank");
  const Watched& watched = ranks_[static_cast<size_t>(rank.value())];
  if (watched.place.activity == Activity::kSection) return true;
  if (!IsPartOfStep(watched.place.activity)) return now - since < limits_.activity;
  return watched.disturbed && watched.moved > since && now - watched.moved < limits_.most;
}

bool HangDetector::AnySection() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Watched& watched) {
    return !watched.idle && watched.place.activity == Activity::kSection;
  });
}

// Those that wait at an earlier step than the others stand at: each side waits for the other.
void HangDetector::FindWaiting(Hang* hang) const {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Watched& watched = ranks_[r];
    if (!watched.idle && watched.place.activity == Activity::kWait && watched.place.step < hang->place.step)
      hang->waiting.push_back({Rank(static_cast<int32_t>(r)), watched.place});
  }
}

void HangDetector::FindShortOf(Hang* hang) const {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Watched& watched = ranks_[r];
    const Progress& at = watched.place;
    const bool is_past = at.step == hang->place.step && OrderOf(hang->place) < OrderOf(at);
    const bool is_short = at.collectives < hang->place.collectives &&
                          (at.collectives < watched.collectives_most || watched.collectives_most == 0);
    if (!watched.idle && is_past && is_short) hang->short_of.push_back({Rank(static_cast<int32_t>(r)), at});
  }
}

std::optional<Hang> HangDetector::OnTick(TimePoint now) {
  if (limits_.factor <= 0) return std::nullopt;
  const Duration gap = now - std::exchange(last_tick_, now);
  if (gap > kTickMax)
    for (Watched& watched : ranks_) watched.moved = std::min(now, watched.moved + gap);
  if (now < next_look_) return std::nullopt;
  next_look_ = now + kLookEvery;
  // What is done there is waited for: time stands still for all.
  if (AnySection()) {
    for (Watched& watched : ranks_) watched.moved = now;
    return std::nullopt;
  }
  const Duration limit = Limit();
  Hang hang;
  const Watched* earliest = nullptr;
  const Watched* furthest = nullptr;
  std::pair<uint64_t, int> first, last;  // where these two stand
  size_t in_loop = 0, in_gate = 0;
  bool still = false;
  const bool all_wait = std::all_of(ranks_.begin(), ranks_.end(), [](const Watched& watched) {
    return watched.idle || watched.place.activity == Activity::kWait;
  });
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Watched& watched = ranks_[r];
    if (watched.idle) continue;
    ++in_loop;
    in_gate += watched.place.phase == TrainPhase::kGate;
    const auto order = OrderOf(watched.place);
    if (!furthest || last < order) furthest = &watched, last = order;
    if (watched.place.activity == Activity::kWait && !all_wait) continue;
    if (earliest && first < order) continue;
    if (!earliest || order < first) {
      hang.ranks.clear();
      hang.still = now - watched.moved;
      first = order;
      still = true;
    }
    earliest = &watched;
    if (!still) continue;  // one of those that stand there has just come
    hang.ranks.push_back(Rank(static_cast<int32_t>(r)));
    hang.still = std::min(hang.still, now - watched.moved);
    still = now - watched.moved >= LimitOf(watched, limit);
  }
  if (!earliest || !still) return std::nullopt;
  hang.place = earliest->place;
  FindWaiting(&hang);
  hang.all = (hang.ranks.size() == in_loop && in_loop == ranks_.size()) || !hang.waiting.empty();
  if (!hang.all) FindShortOf(&hang);
  hang.certain = !hang.all && hang.ranks.size() + in_gate == in_loop && in_loop == ranks_.size() &&
                 earliest->place.phase != TrainPhase::kGate;
  hang.furthest = furthest->place;
  hang.step_time = step_time();
  return hang;
}

}  // namespace kintsugi::core
