#include "replica/save/names.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "replica/save/checksum.h"

namespace kintsugi::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kUnfinishedMark = ".tmp-g";
constexpr size_t kHoldersNamed = 8;
constexpr size_t kJobShown = 60;

std::string Padded(uint64_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*llu", digits, static_cast<unsigned long long>(value));
  return text;
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string_view WithoutSlash(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

}  // namespace

std::string FolderName(Step step) { return std::string(kPrefix) + Padded(step.value(), 10); }

std::string UnfinishedFolderName(Step step, Generation generation, std::string_view job) {
  return FolderName(step) + std::string(kUnfinishedMark) + generation.ToString() + "." + TagOfJob(job);
}

std::string TagOfJob(std::string_view job) {
  std::string tag(job.substr(0, kJobShown));
  for (char& c : tag)
    if (c == '.' || !IsPlainName(std::string("a") + c)) c = '_';
  if (tag == job && !tag.empty()) return tag;
  return tag + "-" + ToHex(ChecksumOf({reinterpret_cast<const uint8_t*>(job.data()), job.size()})).substr(0, 8);
}

std::string PartName(Rank writer) { return "part-" + Padded(static_cast<uint64_t>(writer.value()), 5) + ".json"; }

std::string ObjectsName(Rank writer) {
  return "objects.rank-" + Padded(static_cast<uint64_t>(writer.value()), 5) + ".bin";
}

std::string ShardName(int layout, const std::vector<Rank>& holders) {
  std::string name = "layout" + std::to_string(layout) + ".shard", all;
  for (size_t i = 0; i < holders.size(); ++i) {
    if (i < kHoldersNamed) name += "-" + holders[i].ToString();
    all += holders[i].ToString() + ",";
  }
  if (holders.size() > kHoldersNamed)
    name += "-and-" + std::to_string(holders.size() - kHoldersNamed) + "-more-" +
            ToHex(ChecksumOf({reinterpret_cast<const uint8_t*>(all.data()), all.size()}));
  return name + ".bin";
}

std::optional<Step> StepOfFolder(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto value = Number(name.substr(kPrefix.size()));
  // Only the one spelling that FolderName gives: two folders must never stand for one step.
  if (!value || FolderName(Step(*value)) != name) return std::nullopt;
  return Step(*value);
}

std::optional<Unfinished> UnfinishedOfFolder(std::string_view name) {
  const size_t mark = name.find(kUnfinishedMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const auto step = StepOfFolder(name.substr(0, mark));
  const std::string_view rest = name.substr(mark + kUnfinishedMark.size());
  const size_t dot = std::min(rest.find('.'), rest.size());
  const auto generation = Number(rest.substr(0, dot));
  if (!step || !generation || dot + 1 >= rest.size()) return std::nullopt;
  return Unfinished{*step, Generation(*generation), std::string(rest.substr(dot + 1))};
}

std::string Join(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

std::string BaseName(std::string_view path) {
  path = WithoutSlash(path);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string ParentOf(std::string_view path) {
  path = WithoutSlash(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

bool IsPlainName(std::string_view name) {
  if (name.empty() || name.size() > 200 || name.front() == '.') return false;
  for (char c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '.' && c != '_' &&
        c != '-')
      return false;
  return true;
}

std::string DescribeRanks(const std::vector<Rank>& ranks) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) text += (i ? ", " : "") + ranks[i].ToString();
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return ranks.empty() ? "none" : text;
}

}  // namespace kintsugi::checkpoint
