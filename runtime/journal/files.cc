#include "runtime/journal/files.h"

#include <charconv>
#include <filesystem>
#include <map>

#include "runtime/journal/options.h"

namespace kintsugi::journal {
namespace {

constexpr std::string_view kOfTerm = ".term";

}  // namespace

std::string NameOfTerm(uint64_t term) {
  return kFileName + (term > 1 ? std::string(kOfTerm) + std::to_string(term) : "");
}

uint64_t TermOfName(std::string_view name) {
  if (!name.starts_with(kFileName)) return 0;
  name.remove_prefix(std::string_view(kFileName).size());
  if (name.empty()) return 1;
  if (!name.starts_with(kOfTerm)) return 0;
  name.remove_prefix(kOfTerm.size());
  uint64_t term = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), term);
  return error == std::errc() && end == name.data() + name.size() && term > 1 ? term : 0;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::map<uint64_t, std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (const uint64_t term = TermOfName(entry.path().filename().string())) found[term] = entry.path().string();
  std::vector<std::string> files;
  for (auto& [term, file] : found) files.push_back(std::move(file));
  return files;
}

}  // namespace kintsugi::journal
