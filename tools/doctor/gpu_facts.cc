#include "tools/doctor/gpu_facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

namespace kintsugi::doctor {
namespace {

constexpr size_t kFields = 11;
// In the order of kSlowedQueries; the last is on beside each other reason of the hardware.
constexpr std::array<const char*, 4> kReasons = {"heat", "heat", "its power supply (power brake)", "the hardware"};

std::string Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin, end - begin + 1));
}

std::optional<int64_t> NumberIn(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// nvidia-smi underlines the head of a table, on a pipe too.
std::string WithoutColours(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\033')
      at = std::min(text.find('m', at), text.size());
    else
      plain += text[at];
  }
  return plain;
}

std::vector<std::string> Split(std::string_view text, char at) {
  std::vector<std::string> pieces;
  for (;;) {
    const size_t end = text.find(at);
    pieces.push_back(Trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Result<std::vector<GpuFacts>> ReadGpus(std::string_view csv) {
  std::vector<GpuFacts> gpus;
  for (const std::string& line : Split(csv, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> fields = Split(line, ',');
    const std::optional<int64_t> index = NumberIn(fields[0]);
    if (fields.size() != kFields || !index)
      return Status(StatusCode::kInvalidArgument, "nvidia-smi said '" + line + "'");
    gpus.push_back({.index = static_cast<int>(*index),
                    .name = fields[1],
                    .driver = fields[2],
                    .uncorrected = NumberIn(fields[3]),
                    .pages_pending = fields[4] == "Yes",
                    .celsius = NumberIn(fields[5]),
                    .used_mib = NumberIn(fields[6]),
                    .total_mib = NumberIn(fields[7]),
                    .persistent = fields[8] != "Disabled",
                    .prohibited = fields[9] == "Prohibited",
                    .sliced = fields[10] == "Enabled",
                    .slowed_by = ""});
  }
  return gpus;
}

std::map<int, std::string> ReadSlowed(std::string_view csv) {
  std::map<int, std::string> slowed;
  for (const std::string& line : Split(csv, '\n')) {
    const std::vector<std::string> fields = Split(line, ',');
    const std::optional<int64_t> index = NumberIn(fields[0]);
    if (!index || fields.size() != kReasons.size() + 1) continue;
    const auto active = std::find(fields.begin() + 1, fields.end(), "Active");
    if (active != fields.end())
      slowed[static_cast<int>(*index)] = kReasons[static_cast<size_t>(active - fields.begin() - 1)];
  }
  return slowed;
}

std::vector<PeerGap> ReadPeerGaps(std::string_view table) {
  std::vector<PeerGap> gaps;
  for (const std::string& line : Split(WithoutColours(table), '\n')) {
    std::istringstream words(line);
    std::string name, word;
    words >> name;
    const std::optional<int64_t> from = name.starts_with("GPU") ? NumberIn(name.substr(3)) : std::nullopt;
    for (int to = 0; from && words >> word && !word.starts_with("GPU"); ++to)
      if (to > *from && word != "OK" && word != "X") gaps.push_back({static_cast<int>(*from), to, word});
  }
  return gaps;
}

std::string NcclVersionText(int version) {
  const int of_major = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / of_major) + "." + std::to_string(version % of_major / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace kintsugi::doctor
