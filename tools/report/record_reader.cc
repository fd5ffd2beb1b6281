// The reading half of record_json.h. A bad field throws BadField inside this file; RecordFromJson is the edge where
// that stops and becomes a Status.
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "tools/report/record_json.h"

namespace kintsugi {
namespace {

using Json = nlohmann::ordered_json;

struct BadField {
  std::string path;
  std::string expected;
};

// A value and the way to it from the top of the file.
class Field {
 public:
  Field(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  Field At(const char* key) const {
    if (!json_.is_object()) Refuse("an object");
    const auto found = json_.find(key);
    const std::string path = path_.empty() ? key : path_ + "." + key;
    if (found == json_.end()) throw BadField{path, "a value; it is missing"};
    return Field(*found, path);
  }

  bool Has(const char* key) const { return json_.is_object() && json_.contains(key); }
  // Written by newer versions only.
  std::optional<Field> IfAny(const char* key) const {
    if (!json_.is_object() || !json_.contains(key) || json_.at(key).is_null()) return std::nullopt;
    return At(key);
  }

  template <typename T>
  T Integer() const {
    if (json_.is_number_unsigned()) {
      const auto value = json_.get<uint64_t>();
      if (std::in_range<T>(value)) return static_cast<T>(value);
    } else if (json_.is_number_integer()) {
      const auto value = json_.get<int64_t>();
      if (std::in_range<T>(value)) return static_cast<T>(value);
    }
    Refuse("an integer from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
           std::to_string(std::numeric_limits<T>::max()));
  }

  template <typename Id>
  Id Strong() const {
    return Id(Integer<typename Id::rep>());
  }

  double Real() const {
    if (!json_.is_number()) Refuse("a number");
    return json_.get<double>();
  }

  std::optional<double> OptionalReal() const { return json_.is_null() ? std::nullopt : std::optional(Real()); }

  std::string Text() const {
    if (!json_.is_string()) Refuse("a string");
    return json_.get<std::string>();
  }

  bool IsNull() const { return json_.is_null(); }

  template <typename Convert>
  auto List(Convert convert) const {
    if (!json_.is_array()) Refuse("a list");
    std::vector<decltype(convert(*this))> list;
    list.reserve(json_.size());
    for (const Json& element : json_) {
      list.push_back(convert(Field(element, path_ + "[" + std::to_string(list.size()) + "]")));
    }
    return list;
  }

  [[noreturn]] void Refuse(std::string expected) const {
    throw BadField{path_.empty() ? "the file" : path_, std::move(expected)};
  }

 private:
  const Json& json_;
  std::string path_;
};

Rank ReadRank(const Field& field) { return field.Strong<Rank>(); }

PhaseSpan ReadPhase(const Field& f) {
  return {.phase = f.At("phase").Text(),
          .attempt = f.At("attempt").Integer<uint32_t>(),
          .generation = f.At("generation").Strong<Generation>(),
          .start_ns = f.At("start_ns").Integer<int64_t>(),
          .end_ns = f.At("end_ns").Integer<int64_t>()};
}

RankPhaseSpan ReadRankPhase(const Field& f) {
  return {.rank = ReadRank(f.At("rank")),
          .phase = f.At("phase").Text(),
          .start_ns = f.At("start_ns").Integer<int64_t>(),
          .end_ns = f.At("end_ns").Integer<int64_t>()};
}

StepSpan ReadStep(const Field& f) {
  return {.rank = ReadRank(f.At("rank")),
          .step = f.At("step").Strong<Step>(),
          .last_step = f.At("last_step").Strong<Step>(),
          .start_ns = f.At("start_ns").Integer<int64_t>(),
          .end_ns = f.At("end_ns").Integer<int64_t>()};
}

RankLifetime ReadLifetime(const Field& f) {
  const Field end = f.At("end_ns");
  return {.rank = ReadRank(f.At("rank")),
          .incarnation = f.At("incarnation").Strong<Incarnation>(),
          .start_ns = f.At("start_ns").Integer<int64_t>(),
          .end_ns = end.IsNull() ? std::nullopt : std::optional(end.Integer<int64_t>()),
          .cause = f.At("cause").Text()};
}

HostInfo ReadHost(const Field& f) {
  return {.hostname = f.At("hostname").Text(),
          .system = f.At("system").Text(),
          .processor = f.At("processor").Text(),
          .cores = f.At("cores").Integer<uint32_t>(),
          .memory_bytes = f.At("memory_bytes").Integer<uint64_t>()};
}

IncidentRecord ReadIncident(const Field& f) {
  const auto ms = [&](const char* key) { return f.At(key).OptionalReal(); };
  IncidentRecord incident;
  incident.id = f.At("id").Integer<uint64_t>();
  incident.signal = f.At("signal").Text();
  incident.fault = f.At("fault").Text();
  incident.ranks = f.At("ranks").List(ReadRank);
  incident.cause = f.At("cause").Text();
  incident.step = f.At("step").Strong<Step>();
  incident.attempts = f.At("attempts").Integer<uint32_t>();
  incident.term = {f.At("term").Integer<uint64_t>(), f.At("controller_id").Integer<uint64_t>()};
  incident.generation = f.At("generation").Strong<Generation>();
  incident.path = f.At("path").Text();
  incident.reasons = f.At("reasons").List([](const Field& reason) {
    return RungReason{reason.At("rung").Text(), reason.At("reason").Text()};
  });
  incident.detected_ms = ms("detected_ms");
  incident.parked_ms = ms("parked_ms");
  incident.rebuilt_ms = ms("rebuilt_ms");
  incident.repaired_ms = ms("repaired_ms");
  incident.resumed_ms = ms("resumed_ms");
  incident.bytes_streamed = f.At("bytes_streamed").Integer<uint64_t>();
  incident.stream_gbps = f.At("stream_gbps").OptionalReal();
  incident.sources = f.At("sources").List(ReadRank);
  if (const auto down = f.IfAny("down_ms")) incident.down_ms = down->Real();
  if (const auto lost = f.IfAny("steps_lost")) incident.steps_lost = lost->Integer<uint64_t>();
  incident.fault_ns = f.At("fault_ns").Integer<int64_t>();
  if (const Field step = f.At("struck_step"); !step.IsNull()) incident.struck_step = step.Strong<Step>();
  incident.struck_phase = f.At("struck_phase").Text();
  incident.phases = f.At("phases").List(ReadPhase);
  incident.rank_phases = f.At("rank_phases").List(ReadRankPhase);
  return incident;
}

SaveSummary ReadSaves(const Field& f) {
  SaveSummary saves{.made = f.At("made").Integer<uint64_t>(),
                    .failed = f.At("failed").Integer<uint64_t>(),
                    .newest = std::nullopt,
                    .last_failure = f.At("last_failure").Text()};
  if (const auto newest = f.IfAny("newest_step")) saves.newest = newest->Strong<Step>();
  return saves;
}

RunRecord ReadRun(const Field& f) {
  const Field schema = f.At("schema");
  if (schema.Integer<int>() != kRecordSchema) schema.Refuse(std::to_string(kRecordSchema));
  RunRecord record;
  record.world_size = f.At("world_size").Integer<uint32_t>();
  record.steps = f.At("steps").Integer<uint64_t>();
  record.losses = f.At("losses").List(
      [](const Field& loss) { return loss.OptionalReal().value_or(std::numeric_limits<double>::quiet_NaN()); });
  if (f.Has("losses_every") && (record.losses_every = f.At("losses_every").Integer<uint64_t>()) == 0)
    f.At("losses_every").Refuse("a positive number");
  record.final_loss = f.At("final_loss").OptionalReal();
  record.final_digest = f.At("final_digest").Text();
  record.samples_consumed = f.At("samples_consumed").Integer<uint64_t>();
  record.samples_digest = f.At("samples_digest").Text();
  record.exit = f.At("exit").Integer<int>();
  record.incidents = f.At("incidents").List(ReadIncident);
  record.resumed_from = f.At("resumed_from").Integer<uint64_t>();
  record.host = ReadHost(f.At("host"));
  record.started_at = f.At("started_at").Text();
  record.command_line = f.At("command_line").List([](const Field& word) { return word.Text(); });
  if (const auto time = f.IfAny("time_ns")) {
    // Earlier versions counted saves as useful, and could not pause.
    const auto saving = time->IfAny("saving"), paused = time->IfAny("paused");
    record.time = {.starting_ns = time->At("starting").Integer<int64_t>(),
                   .down_ns = time->At("down").Integer<int64_t>(),
                   .redone_ns = time->At("redone").Integer<int64_t>(),
                   .saving_ns = saving ? saving->Integer<int64_t>() : 0,
                   .paused_ns = paused ? paused->Integer<int64_t>() : 0};
  }
  if (const auto saves = f.IfAny("saves")) record.saves = ReadSaves(*saves);
  if (const auto at = f.IfAny("started_unix_ms")) record.started_unix_ms = at->Integer<int64_t>();
  if (const auto offset = f.IfAny("utc_offset_minutes")) record.utc_offset_minutes = offset->Integer<int32_t>();
  const auto text = [](const Field& word) { return word.Text(); };
  if (const auto hosts = f.IfAny("hosts")) record.hosts = hosts->List(text);
  if (const auto struck = f.IfAny("struck")) record.struck = struck->List(text);
  if (const auto line = f.IfAny("launcher_line")) record.launcher_line = line->List(text);
  record.origin_ns = f.At("origin_ns").Integer<int64_t>();
  record.end_ns = f.At("end_ns").Integer<int64_t>();
  record.step_spans = f.At("step_spans").List(ReadStep);
  record.lifetimes = f.At("lifetimes").List(ReadLifetime);
  return record;
}

}  // namespace

Result<RunRecord> RecordFromJson(const Json& json) {
  try {
    return ReadRun(Field(json, ""));
  } catch (const BadField& bad) {
    return Status(StatusCode::kInvalidArgument,
                  bad.path + ": expected " + bad.expected + "; give a record.json that `kintsugi run --report` wrote");
  }
}

Result<RunRecord> ReadRecord(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Status(StatusCode::kNotFound, "cannot open " + path.string() + "; name the folder of a finished report");
  }
  std::ostringstream text;
  text << file.rdbuf();
  const Json json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return Status(StatusCode::kInvalidArgument,
                  path.string() + " is not JSON or was cut short; run the job again with --report");
  }
  Result<RunRecord> record = RecordFromJson(json);
  if (!record.ok()) return record.status().Annotate(path.string());
  return record;
}

}  // namespace kintsugi
