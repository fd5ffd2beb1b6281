#include "runtime/launcher/run/run_history.h"

#include <algorithm>
#include <utility>

#include "runtime/journal/text.h"

namespace kintsugi {
namespace {

// The clock of who leads now may put the run's begin a little later than its first process.
Duration Since(TimePoint at, TimePoint begin) { return std::max(at - begin, Duration()); }

// The newest stay, so many.
template <typename Kept>
void Append(const std::vector<Kept>& told, size_t at_most, std::vector<Kept>* kept) {
  kept->insert(kept->end(), told.begin(), told.end());
  if (kept->size() > at_most) kept->erase(kept->begin(), kept->end() - static_cast<ptrdiff_t>(at_most));
}

}  // namespace

wire::KeptIncident ToKept(const IncidentResult& incident, TimePoint begin) {
  core::IncidentRecord record = incident.record;
  record.rank_spans.clear();  // one for each rank and phase: too much for a thousand ranks
  return {record.id, journal::WriteRecord(record, begin),
          incident.injected ? ToString(incident.injected->injection) : std::string()};
}

wire::KeptLife ToKept(const RankLife& life, TimePoint begin) {
  return {life.rank,
          life.incarnation,
          Since(life.begin, begin),
          Since(life.end.value_or(begin), begin),
          life.end.has_value(),
          life.cause};
}

wire::KeptStep ToKept(const StepTiming& step, TimePoint begin) {
  return {step.rank, step.step, Since(step.begin, begin), Since(step.end, begin)};
}

wire::KeptWorld ToKept(const WorldChange& world, TimePoint begin) {
  return {Since(world.at, begin), world.step, world.ranks, world.left, world.came, world.incident};
}

RankLife FromKept(const wire::KeptLife& kept, TimePoint begin) {
  RankLife life{kept.rank, kept.incarnation, begin + kept.begin, std::nullopt, kept.cause};
  if (kept.over) life.end = begin + kept.end;
  return life;
}

StepTiming FromKept(const wire::KeptStep& kept, TimePoint begin) {
  return {kept.rank, kept.step, begin + kept.begin, begin + kept.end};
}

WorldChange FromKept(const wire::KeptWorld& kept, TimePoint begin) {
  return {begin + kept.at, kept.step, kept.ranks, kept.left, kept.came, kept.incident};
}

std::vector<IncidentResult> FromKept(const std::vector<wire::KeptIncident>& kept, TimePoint begin) {
  std::vector<IncidentResult> incidents;
  for (const wire::KeptIncident& one : kept) {
    Result<core::IncidentRecord> record = journal::ReadRecord(one.record, begin);
    const uint64_t before = incidents.empty() ? 0 : incidents.back().record.id;
    if (!record.ok() || record->id != one.id || one.id <= before) continue;
    IncidentResult incident{std::move(record).value(), std::nullopt};
    if (const Result<Injection> injection = ParseInjection(one.injection); !one.injection.empty() && injection.ok())
      incident.injected = {*injection, incident.record.fault_at};
    incidents.push_back(std::move(incident));
  }
  return incidents;
}

void RunHistory::OnTold(const wire::KeepIncidents& told) {
  if (told.all) incidents_.clear();
  for (const wire::KeptIncident& incident : told.incidents) incidents_.insert_or_assign(incident.id, incident);
  while (incidents_.size() > wire::KeepIncidents::kMax) incidents_.erase(incidents_.begin());
}

void RunHistory::OnTold(const wire::KeepSpans& told) {
  if (told.all) lives_.clear(), steps_.clear(), worlds_.clear();
  for (const wire::KeptLife& life : told.lives) lives_.insert_or_assign({life.rank, life.incarnation}, life);
  while (lives_.size() > wire::KeepSpans::kLivesMax)
    lives_.erase(std::min_element(lives_.begin(), lives_.end(),
                                  [](const auto& a, const auto& b) { return a.second.begin < b.second.begin; }));
  Append(told.steps, wire::KeepSpans::kStepsMax, &steps_);
  Append(told.worlds, wire::KeepSpans::kWorldsMax, &worlds_);
}

KeptHistory RunHistory::All() const {
  KeptHistory all;
  for (const auto& [id, incident] : incidents_) all.incidents.push_back(incident);
  for (const auto& [process, life] : lives_) all.lives.push_back(life);
  std::sort(all.lives.begin(), all.lives.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  all.steps = steps_;
  all.worlds = worlds_;
  return all;
}

}  // namespace kintsugi
