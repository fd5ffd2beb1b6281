#include "runtime/base/incident_summary.h"

#include <cmath>

#include "runtime/base/utf8.h"

namespace kintsugi {
namespace {

using Json = nlohmann::ordered_json;

Json Number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json ListOf(const std::vector<Rank>& ranks) {
  Json list = Json::array();
  for (const Rank rank : ranks) list.push_back(rank.value());
  return list;
}

Json ListOf(const std::vector<ToldReason>& reasons) {
  Json list = Json::array();
  for (const ToldReason& reason : reasons)
    list.push_back({{"rung", ToUtf8(reason.rung)}, {"reason", ToUtf8(reason.reason)}});
  return list;
}

}  // namespace

Json ToJson(const IncidentSummary& incident) {
  return {{"id", incident.id},
          {"signal", ToUtf8(incident.signal)},
          {"fault", ToUtf8(incident.fault)},
          {"ranks", ListOf(incident.ranks)},
          {"cause", ToUtf8(incident.cause)},
          {"step", incident.step.value()},
          {"attempts", incident.attempts},
          {"term", incident.term.number},
          {"generation", incident.generation.value()},
          {"path", ToUtf8(incident.path)},
          {"reasons", ListOf(incident.reasons)},
          {"detected_ms", Number(incident.detected_ms)},
          {"parked_ms", Number(incident.parked_ms)},
          {"rebuilt_ms", Number(incident.rebuilt_ms)},
          {"repaired_ms", Number(incident.repaired_ms)},
          {"resumed_ms", Number(incident.resumed_ms)},
          {"bytes_streamed", incident.bytes_streamed},
          {"stream_gbps", Number(incident.stream_gbps)},
          {"sources", ListOf(incident.sources)},
          {"down_ms", Number(incident.down_ms)},
          {"steps_lost", incident.steps_lost}};
}

}  // namespace kintsugi
