#include "runtime/launcher/leader/node_broadcast.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/launcher/run/run_history.h"

namespace kintsugi {
namespace {

constexpr int kManyNodes = 256;
// Steps of more ranks would be most of what nodes are told, and no picture shows single ones of them.
constexpr int kRanksOfSteps = 64;
constexpr Duration kStepsEvery = std::chrono::seconds(1);

size_t Newest(const std::vector<StepTiming>& steps, uint64_t wanted) {
  return static_cast<size_t>(std::min<uint64_t>({wanted, steps.size(), wire::KeepSpans::kStepsMax}));
}

}  // namespace

NodeBroadcast::NodeBroadcast(NodeRegistry& registry, NodeOrders& orders, const RunAccount& account,
                             const EvenSplits& splits, Duration beat, std::shared_ptr<LogSink> log)
    : registry_(registry), orders_(orders), account_(account), splits_(splits), beat_(beat), log_(std::move(log)) {
  KINTSUGI_CHECK(beat_ > Duration(), "nodes are told of each other without a pause");
}

void NodeBroadcast::Say(LogLevel level, const std::string& line) {
  log_->Write(level, line);
  TellAll(wire::NodeNews{level, line});
}

void NodeBroadcast::TellAll(const wire::NodeOrder& order) {
  for (const NodeRegistry::Node& node : registry_.all())
    if (node.here) orders_.Send(node.number, order);
}

void NodeBroadcast::Poll(const core::LedgerTotals& folded, TimePoint now) {
  TellPlaces();
  tells_at_once_ = true;
  TellStory(now);
  const Duration slack = beat_ / 4;
  if (now - last_pulse_ >= slack) {
    last_pulse_ = now;
    PulseThose(PulseEvery() + slack, now);
  }
  // A second for each hundred nodes: nobody waits for it.
  const Duration often = std::chrono::seconds(1 + registry_.shape().nodes / 100);
  if (now - last_totals_ >= often && folded.step != told_totals_) {
    last_totals_ = now;
    told_totals_ = folded.step;
    TellTotals(folded);
  }
}

void NodeBroadcast::OnJoined(int node, bool moved) {
  KINTSUGI_CHECK(registry_.At(node).here, registry_.Name(node) + " is a newcomer, and is not here");
  newcomers_[node] = newcomers_[node] || moved;
}

void NodeBroadcast::TellNewcomer() {
  if (std::exchange(tells_at_once_, false)) TellPlaces();
}

// All of them to nodes that have come, and to the others what has changed.
void NodeBroadcast::TellPlaces() {
  if (newcomers_.empty() || !account_.started()) return;
  wire::NodePlaces all, changed;
  for (const NodeRegistry::Node& node : registry_.all()) {
    if (node.place.port > 0) all.places.push_back(node.place);
    if (const auto newcomer = newcomers_.find(node.number); newcomer != newcomers_.end() && newcomer->second)
      changed.places.push_back(node.place);
  }
  for (const NodeRegistry::Node& node : registry_.all()) {
    if (!node.here) continue;
    if (newcomers_.count(node.number))
      orders_.Send(node.number, all);
    else if (!changed.places.empty())
      orders_.Send(node.number, changed);
  }
  newcomers_.clear();
}

// Within the silence limit a node of a large run hears its leader twice, of any other four times: answering is a third
// of what a thousand nodes cost.
Duration NodeBroadcast::PulseEvery() const { return beat_ * (registry_.shape().nodes > kManyNodes ? 2 : 1); }

void NodeBroadcast::Pulse(NodeRegistry::Node& node, TimePoint now) {
  KINTSUGI_CHECK(node.here, registry_.Name(node.number) + " has a pulse, and is not here");
  node.pulsed_at = now;
  orders_.Send(node.number, wire::NodePulse{account_.began(), account_.checkpoints(), account_.running(),
                                            splits_.order(), account_.ForNext(now), account_.started()});
}

void NodeBroadcast::PulseNow(int node, TimePoint now) { Pulse(registry_.At(node), now); }

// A node that tells its pages is answered at once, which costs less than a round of all. Nodes keep the beat only
// roughly.
void NodeBroadcast::OnPages(int node, TimePoint now) {
  if (now - registry_.At(node).pulsed_at >= PulseEvery() - beat_ / 2) Pulse(registry_.At(node), now);
}

void NodeBroadcast::PulseAll(TimePoint now) {
  TellStory(now);
  PulseThose(Duration(), now);
}

// Here are those that have nothing to tell.
void NodeBroadcast::PulseThose(Duration silent_for, TimePoint now) {
  for (NodeRegistry::Node& node : registry_.all())
    if (node.here && now - node.pulsed_at >= silent_for) Pulse(node, now);
}

// Before the pulse that counts incidents, and names who takes part: who takes over is not to count one, nor to lead a
// world, that it does not know.
void NodeBroadcast::TellStory(TimePoint now) {
  const wire::KeepIncidents incidents = NewIncidents();
  const wire::KeepSpans spans = NewSpans(now);
  for (NodeRegistry::Node& node : registry_.all()) {
    if (!node.here) continue;
    if (!std::exchange(node.knows_story, true)) {
      orders_.Send(node.number, wire::KeepIncidents{told_incidents_, true});
      orders_.Send(node.number, AllSpans());
      continue;
    }
    if (!incidents.incidents.empty()) orders_.Send(node.number, incidents);
    if (!spans.lives.empty() || !spans.steps.empty() || !spans.worlds.empty()) orders_.Send(node.number, spans);
  }
}

wire::KeepIncidents NodeBroadcast::NewIncidents() {
  wire::KeepIncidents changed;
  if (told_news_ == account_.incident_news()) return changed;
  told_news_ = account_.incident_news();
  const std::vector<IncidentResult>& over = account_.result().incidents;
  std::map<uint64_t, wire::KeptIncident> before;
  for (wire::KeptIncident& told : told_incidents_) before[told.id] = std::move(told);
  told_incidents_.clear();
  for (size_t i = over.size() - std::min(over.size(), wire::KeepIncidents::kMax); i < over.size(); ++i) {
    told_incidents_.push_back(ToKept(over[i], account_.result().begin));
    const wire::KeptIncident& now = told_incidents_.back();
    if (const wire::KeptIncident& told = before[now.id]; told.record != now.record || told.injection != now.injection)
      changed.incidents.push_back(now);
  }
  return changed;
}

// Processes at once, as few as there are; steps together, and also where somebody has just come and is told all.
wire::KeepSpans NodeBroadcast::NewSpans(TimePoint now) {
  wire::KeepSpans changed;
  const RunResult& result = account_.result();
  if (std::exchange(told_life_news_, account_.life_news()) != account_.life_news()) {
    for (size_t i = 0; i < result.lives.size(); ++i) {
      const bool over = result.lives[i].end.has_value();
      const bool told = i < told_lives_.size() && told_lives_[i] == over;
      if (!told && changed.lives.size() < wire::KeepSpans::kLivesMax)
        changed.lives.push_back(ToKept(result.lives[i], result.begin));
      if (i == told_lives_.size()) told_lives_.push_back(over);
      told_lives_[i] = over;
    }
  }
  const uint64_t worlds = account_.worlds_seen() - std::exchange(told_worlds_, account_.worlds_seen());
  for (size_t i = result.worlds.size() - std::min(result.worlds.size(), worlds); i < result.worlds.size(); ++i)
    changed.worlds.push_back(ToKept(result.worlds[i], result.begin));
  const bool newcomer = std::any_of(registry_.all().begin(), registry_.all().end(),
                                    [](const NodeRegistry::Node& node) { return node.here && !node.knows_story; });
  if (!newcomer && now - last_steps_ < kStepsEvery) return changed;
  last_steps_ = now;
  const uint64_t steps = std::exchange(told_steps_, account_.steps_timed());
  if (registry_.shape().nodes * registry_.shape().local_ranks > kRanksOfSteps) return changed;
  for (size_t i = result.steps.size() - Newest(result.steps, told_steps_ - steps); i < result.steps.size(); ++i)
    changed.steps.push_back(ToKept(result.steps[i], result.begin));
  return changed;
}

wire::KeepSpans NodeBroadcast::AllSpans() const {
  wire::KeepSpans all{.all = true};
  const RunResult& result = account_.result();
  const size_t lives = result.lives.size();
  for (size_t i = lives - std::min(lives, wire::KeepSpans::kLivesMax); i < lives; ++i)
    all.lives.push_back(ToKept(result.lives[i], result.begin));
  for (const WorldChange& world : result.worlds) all.worlds.push_back(ToKept(world, result.begin));
  if (registry_.shape().nodes * registry_.shape().local_ranks > kRanksOfSteps) return all;
  for (size_t i = result.steps.size() - Newest(result.steps, told_steps_); i < result.steps.size(); ++i)
    all.steps.push_back(ToKept(result.steps[i], result.begin));
  return all;
}

// What is in the sums need not be kept by others any more. One that has just come is told all; the others what is new.
void NodeBroadcast::TellTotals(const core::LedgerTotals& folded) {
  const auto tell = [&](int node, uint64_t from) {
    KINTSUGI_CHECK(from <= folded.curve.size(), "more of the curve was told than there is");
    wire::KeepTotals totals{folded, from};
    totals.totals.curve.erase(totals.totals.curve.begin(), totals.totals.curve.begin() + static_cast<ptrdiff_t>(from));
    orders_.Send(node, totals);
  };
  const bool shrunk = folded.curve_every != told_curve_every_ || folded.curve.size() < told_curve_;
  for (NodeRegistry::Node& node : registry_.all()) {
    if (!node.here) continue;
    const bool knows = std::exchange(node.knows_totals, true);
    tell(node.number, knows && !shrunk ? told_curve_ : 0);
  }
  told_curve_ = folded.curve.size();
  told_curve_every_ = folded.curve_every;
}

}  // namespace kintsugi
