#include "tools/report/words.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/report/text.h"

namespace kintsugi {
namespace {

constexpr int kExitResumable = 75;
constexpr size_t kMaxNamedRanks = 8;

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kFaults = {{
    {"kill", "was killed"},
    {"exit", "left with an exit code"},
    {"throw", "threw an exception"},
    {"freeze", "fell silent"},
    {"uce", "lost device memory"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kRungs = {{
    {"resume", "a false alarm, nothing was lost"},
    {"retry", "nothing was lost, the step was run again"},
    {"patch", "the damaged tensors alone were replaced"},
    {"rebuild", "the process lived on, its memory was rebuilt"},
    {"adopt", "its state was still in memory, a new process took it over"},
    {"spare", "a warm process that was waiting took the place of the lost one"},
    {"respawn", "a new process took the place of the lost one"},
    {"shrink", "the run went on with fewer ranks"},
    {"grow", "ranks came to the run"},
    {"reload", "the newest complete in-memory snapshot or checkpoint was loaded"},
    {"dump", "the survivors wrote a complete checkpoint"},
    {"exit", "the run ended"},
}};

// The longest any incident took, or nullopt when one did not end.
std::optional<double> LongestRecovery(const RunRecord& record) {
  double longest = 0;
  for (const ReportedIncident& incident : record.incidents) {
    if (!incident.resumed_ms) return std::nullopt;
    longest = std::max(longest, *incident.resumed_ms);
  }
  return longest;
}

std::string RecoverySentence(const RunRecord& record) {
  if (record.incidents.empty()) return "Nothing went wrong on the way.";
  const auto longest = LongestRecovery(record);
  if (!longest) return "Not every rank stepped again after the last fault.";
  if (record.incidents.size() == 1) return "All ranks were stepping again " + FormatMs(longest) + " after the fault.";
  return "All ranks were stepping again each time, after " + FormatMs(longest) + " at most.";
}

std::string ComparisonSentence(const RunComparison& comparison) {
  if (comparison.identical) {
    return "Every loss, every sample and the final state match the undisturbed run, bit for bit.";
  }
  if (comparison.first_difference) {
    return "The losses leave the undisturbed run at step " + FormatCount(*comparison.first_difference) + ".";
  }
  if (!comparison.same_final_state) return "The losses match the undisturbed run, but the final digest does not.";
  return "The losses match the undisturbed run, but the samples consumed do not.";
}

}  // namespace

std::string RankWords(const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t named = std::min(ranks.size(), kMaxNamedRanks);
  for (size_t i = 0; i < named; ++i) {
    if (i > 0) out += i + 1 == ranks.size() ? " and " : ", ";
    out += ranks[i].ToString();
  }
  if (named < ranks.size()) out += " and " + std::to_string(ranks.size() - named) + " more";
  return out;
}

std::string FaultWords(const ReportedIncident& incident) {
  std::string who = RankWords(incident.ranks);
  who[0] = static_cast<char>(who[0] - 'a' + 'A');
  const std::string& what = incident.fault.empty() ? incident.signal : incident.fault;
  // One word stands for several root causes, which need not be alike: the cause's own text tells them apart.
  if (incident.ranks.size() > 1) return who + " failed (" + (incident.attempts > 1 ? "first: " : "") + what + ")";
  const auto word =
      std::find_if(kFaults.begin(), kFaults.end(), [&](const auto& entry) { return entry.first == what; });
  return word == kFaults.end() ? who + ": " + what : who + " " + std::string(word->second);
}

std::string PlaceWords(const ReportedIncident& incident) {
  std::string out;
  if (incident.struck_step) out = "in step " + FormatCount(incident.struck_step->value());
  if (incident.struck_phase.empty()) return out;
  const std::string phase =
      incident.struck_phase == "between" ? "between two steps" : "during " + incident.struck_phase;
  return out.empty() ? phase : out + ", " + phase;
}

std::string TimeOfDay(const RunRecord& record, int64_t ns) {
  if (record.started_unix_ms == 0) return "+\xC2\xA0" + FormatMs(static_cast<double>(ns) / 1e6);
  constexpr int64_t kDay = 86'400'000, kLast = int64_t{1} << 50;  // what comes from a file may be any number
  const int64_t begin =
      std::clamp<int64_t>(record.started_unix_ms, 0, kLast) + int64_t{record.utc_offset_minutes} * 60'000;
  const int64_t at = begin + ns / 1'000'000;
  const int64_t day = (at % kDay + kDay) % kDay;
  char text[40];
  std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03d", static_cast<int>(day / 3'600'000),
                static_cast<int>(day / 60'000 % 60), static_cast<int>(day / 1000 % 60), static_cast<int>(day % 1000));
  const int64_t days = (at - day) / kDay - (begin - (begin % kDay + kDay) % kDay) / kDay;
  return std::string(text) + (days > 0 ? " (day " + std::to_string(days + 1) + ")" : "");
}

std::string RungWords(const std::string& rung) {
  const auto found = std::find_if(kRungs.begin(), kRungs.end(), [&](const auto& entry) { return entry.first == rung; });
  return found == kRungs.end() ? rung : std::string(found->second);
}

std::string VerdictWords(const RunRecord& record, const RunComparison* comparison) {
  if (record.exit == kExitResumable) return "Stopped, and ready to resume.";
  if (record.exit != 0) return "The run failed with exit code " + std::to_string(record.exit) + ".";
  if (comparison != nullptr && !comparison->identical) return "Finished, but not with the same bits.";
  if (record.incidents.empty())
    return comparison != nullptr ? "Undisturbed, with the same bits." : "Finished undisturbed.";
  const std::string broken = record.incidents.size() == 1 ? "Broken once"
                             : record.incidents.size() == 2
                                 ? "Broken twice"
                                 : "Broken " + FormatCount(record.incidents.size()) + " times";
  if (comparison != nullptr) return broken + ", mended to the same bits.";
  return broken + (record.incidents.size() == 1 ? ", and mended." : ", mended each time.");
}

std::string LeadWords(const RunRecord& record, const RunComparison* comparison) {
  std::string out =
      Counted(record.world_size, "rank", "ranks") + " committed " + Counted(record.steps, "step", "steps");
  if (record.resumed_from > 0) out += ", resumed after step " + FormatCount(record.resumed_from);
  out += ". " + RecoverySentence(record);
  if (comparison != nullptr) out += " " + ComparisonSentence(*comparison);
  if (record.exit != 0 && !record.reason.empty()) out += " It ended because of this: " + record.reason + ".";
  if (record.exit == kExitResumable) out += " Exit code 75: start again with --resume to go on.";
  return out;
}

}  // namespace kintsugi
