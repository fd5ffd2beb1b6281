#include "tools/doctor/gpu_facts.h"

#include <charconv>

namespace kintsugi::doctor {
namespace {

constexpr size_t kFields = 7;

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
                    .used_mib = NumberIn(fields[6])});
  }
  return gpus;
}

std::string NcclVersionText(int version) {
  const int of_major = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / of_major) + "." + std::to_string(version % of_major / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace kintsugi::doctor
