#include "tools/report/trace.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tools/report/decimate.h"
#include "tools/report/extent.h"
#include "tools/report/text.h"
#include "tools/report/world_chart.h"

namespace kintsugi {
namespace {

using Json = nlohmann::ordered_json;

// What encloses what on a track.
constexpr int kLifeLayer = 0;
constexpr int kWorkLayer = 1;   // steps and incidents
constexpr int kPhaseLayer = 2;  // phases of an incident

struct Track {
  std::vector<TraceSlice> slices;
  std::vector<Json> instants;
};
using Tracks = std::map<int64_t, Track>;

// Whole microseconds, rounded down for negative instants too.
int64_t Microseconds(int64_t ns) { return ns >= 0 ? ns / 1000 : -((-ns + 999) / 1000); }

std::string RankName(Rank rank) { return "rank " + rank.ToString(); }

Json RankList(const std::vector<Rank>& ranks) {
  Json list = Json::array();
  for (Rank rank : ranks) list.push_back(rank.value());
  return list;
}

std::string IncidentName(const ReportedIncident& incident) {
  return "incident " + std::to_string(incident.id) + ": " + ToUtf8(incident.fault) + ", " + ToUtf8(incident.path);
}

void AddIncident(const ReportedIncident& incident, Tracks* tracks) {
  const TimeExtent extent = IncidentExtent(incident);
  Json args = {{"signal", ToUtf8(incident.signal)},
               {"ranks", RankList(incident.ranks)},
               {"cause", ToUtf8(incident.cause)},
               {"step", incident.step.value()},
               {"path", ToUtf8(incident.path)},
               {"attempts", incident.attempts},
               {"term", incident.term.number},
               {"generation", incident.generation.value()},
               {"bytes_streamed", incident.bytes_streamed},
               {"sources", RankList(incident.sources)}};
  auto& controller = (*tracks)[kControllerTrack].slices;
  controller.push_back(
      {extent.start_ns, extent.end_ns, kWorkLayer, IncidentName(incident), "incident", std::move(args)});
  for (const ControllerPhaseSpan& span : incident.phases) {
    controller.push_back(
        {span.start_ns,
         span.end_ns,
         kPhaseLayer,
         ToUtf8(span.phase),
         "phase",
         {{"incident", incident.id}, {"attempt", span.attempt}, {"generation", span.generation.value()}}});
  }
  for (Rank rank : incident.ranks) {
    const auto track = tracks->find(kRankTrackBase + rank.value());
    if (track == tracks->end()) continue;
    track->second.instants.push_back({{"name", "fault: " + ToUtf8(incident.fault)},
                                      {"cat", "fault"},
                                      {"ph", "i"},
                                      {"s", "t"},
                                      {"ts", Microseconds(Held(incident.fault_ns))},
                                      {"pid", kTraceProcess},
                                      {"tid", track->first},
                                      {"args", {{"incident", incident.id}, {"cause", ToUtf8(incident.cause)}}}});
  }
}

// A rank's share of an incident: one span around its phases.
void AddRankShare(const ReportedIncident& incident, Tracks* tracks) {
  std::map<int64_t, TimeExtent> shares;
  for (const RankPhaseSpan& span : incident.rank_phases) {
    const auto track = tracks->find(kRankTrackBase + span.rank.value());
    if (track == tracks->end()) continue;
    track->second.slices.push_back(
        {span.start_ns, span.end_ns, kPhaseLayer, ToUtf8(span.phase), "phase", {{"incident", incident.id}}});
    auto [share, fresh] = shares.try_emplace(track->first, TimeExtent{span.start_ns, span.end_ns});
    share->second.start_ns = std::min(share->second.start_ns, span.start_ns);
    share->second.end_ns = std::max(share->second.end_ns, span.end_ns);
  }
  for (const auto& [tid, share] : shares) {
    (*tracks)[tid].slices.push_back(
        {share.start_ns, share.end_ns, kWorkLayer, IncidentName(incident), "incident", {{"incident", incident.id}}});
  }
}

void AddSteps(const RunRecord& record, const TraceOptions& options, Tracks* tracks) {
  for (const StepSpan& span : CondenseSteps(record.step_spans, record.incidents, options.max_steps_per_rank)) {
    const auto track = tracks->find(kRankTrackBase + span.rank.value());
    if (track == tracks->end()) continue;
    const bool single = span.step == span.last_step;
    track->second.slices.push_back(
        {span.start_ns,
         span.end_ns,
         kWorkLayer,
         single ? "step " + span.step.ToString() : "steps " + span.step.ToString() + " to " + span.last_step.ToString(),
         "step",
         {{"step", span.step.value()}, {"last_step", span.last_step.value()}}});
  }
}

void AddLifetimes(const RunRecord& record, Tracks* tracks) {
  for (const RankLifetime& life : record.lifetimes) {
    const auto track = tracks->find(kRankTrackBase + life.rank.value());
    if (track == tracks->end()) continue;
    track->second.slices.push_back({life.start_ns,
                                    life.end_ns.value_or(record.end_ns),
                                    kLifeLayer,
                                    RankName(life.rank) + ", incarnation " + life.incarnation.ToString(),
                                    "life",
                                    {{"incarnation", life.incarnation.value()}, {"cause", ToUtf8(life.cause)}}});
  }
}

// How many ranks took part, as a line of its own.
void AddWorlds(const RunRecord& record, Tracks* tracks) {
  if (record.worlds.empty()) return;
  const auto add = [&](int64_t ns, uint64_t ranks) {
    (*tracks)[kControllerTrack].instants.push_back({{"name", "ranks that take part"},
                                                    {"cat", "world"},
                                                    {"ph", "C"},
                                                    {"ts", Microseconds(Held(ns))},
                                                    {"pid", kTraceProcess},
                                                    {"tid", kControllerTrack},
                                                    {"args", {{"ranks", ranks}}}});
  };
  add(0, RanksBefore(record.worlds.front()));
  for (const WorldSpan& world : record.worlds) add(world.start_ns, world.ranks);
}

Json SliceEvent(TraceSlice slice, int64_t tid) {
  const int64_t start = Microseconds(slice.start_ns);
  return {{"name", std::move(slice.name)},
          {"cat", std::move(slice.category)},
          {"ph", "X"},
          {"ts", start},
          {"dur", Microseconds(slice.end_ns) - start},
          {"pid", kTraceProcess},
          {"tid", tid},
          {"args", std::move(slice.args)}};
}

Json Metadata(const char* name, int64_t tid, Json args) {
  return {{"name", name}, {"ph", "M"}, {"pid", kTraceProcess}, {"tid", tid}, {"args", std::move(args)}};
}

// One event per line, so that the file can be searched and compared with ordinary tools.
class EventWriter {
 public:
  void Write(const Json& event) {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    out_ += event.dump();
  }

  void WriteTrack(int64_t tid, Track track) {
    const std::string name = tid == kControllerTrack ? "controller" : "rank " + std::to_string(tid - kRankTrackBase);
    Write(Metadata("thread_name", tid, {{"name", name}}));
    Write(Metadata("thread_sort_index", tid, {{"sort_index", tid}}));
    std::vector<Json> events = std::move(track.instants);
    for (TraceSlice& slice : NestSlices(std::move(track.slices))) events.push_back(SliceEvent(std::move(slice), tid));
    std::stable_sort(events.begin(), events.end(),
                     [](const Json& a, const Json& b) { return a["ts"].get<int64_t>() < b["ts"].get<int64_t>(); });
    for (const Json& event : events) Write(event);
  }

  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
  bool first_ = true;
};

Json OtherData(const RunRecord& record) {
  Json words = Json::array();
  for (const std::string& word : record.command_line) words.push_back(ToUtf8(word));
  return {{"command_line", std::move(words)},
          {"started_at", ToUtf8(record.started_at)},
          {"host", ToUtf8(record.host.hostname)},
          {"origin_ns", record.origin_ns}};
}

}  // namespace

std::vector<TraceSlice> NestSlices(std::vector<TraceSlice> slices) {
  const auto outer_first = [](const TraceSlice& a, const TraceSlice& b) {
    return std::tie(a.start_ns, b.end_ns, a.layer) < std::tie(b.start_ns, a.end_ns, b.layer);
  };
  for (TraceSlice& slice : slices) {
    slice.start_ns = Held(slice.start_ns);
    slice.end_ns = std::max(slice.start_ns, Held(slice.end_ns));
  }
  std::stable_sort(slices.begin(), slices.end(), outer_first);
  const auto shorten = [](TraceSlice& slice, int64_t end_ns) {
    if (!slice.args.contains("measured_ms")) slice.args["measured_ms"] = MsBetween(slice.start_ns, slice.end_ns);
    slice.end_ns = end_ns;
  };
  std::vector<size_t> open;  // spans that have not ended yet, each inside the one before it
  for (size_t i = 0; i < slices.size(); ++i) {
    TraceSlice& slice = slices[i];
    while (!open.empty() && slices[open.back()].end_ns <= slice.start_ns) open.pop_back();
    while (!open.empty() && slices[open.back()].end_ns < slice.end_ns) {
      TraceSlice& outer = slices[open.back()];
      if (slice.layer > outer.layer) {
        shorten(slice, outer.end_ns);
      } else {
        shorten(outer, slice.start_ns);
        open.pop_back();
      }
    }
    open.push_back(i);
  }
  std::stable_sort(slices.begin(), slices.end(), outer_first);  // shortening may have turned two of one start around
  return slices;
}

std::string TraceJson(const RunRecord& record, const TraceOptions& options) {
  Tracks tracks;
  tracks[kControllerTrack];
  for (uint32_t rank = 0; rank < std::min(record.world_size, options.max_ranks); ++rank) tracks[kRankTrackBase + rank];
  AddLifetimes(record, &tracks);
  AddSteps(record, options, &tracks);
  AddWorlds(record, &tracks);
  for (const ReportedIncident& incident : record.incidents) {
    AddIncident(incident, &tracks);
    AddRankShare(incident, &tracks);
  }
  EventWriter events;
  events.Write(Metadata("process_name", kControllerTrack, {{"name", "kintsugi run"}}));
  for (auto& [tid, track] : tracks) events.WriteTrack(tid, std::move(track));
  return "{\"displayTimeUnit\":\"ms\",\"otherData\":" + OtherData(record).dump() + ",\"traceEvents\":[" +
         events.Take() + "\n]}\n";
}

}  // namespace kintsugi
