#include "replica/formats/hub/index.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace kintsugi::formats::hub {
namespace {

constexpr size_t kIndexBytesMax = size_t{256} << 20;
constexpr int kDepthMax = 8;

// "./a" and "b//c" as "a" and "b/c"; nothing for what does not stay in the folder.
std::optional<std::string> NameInside(std::string_view given) {
  if (given.starts_with('/') || !ValidateKey(std::string(given)).ok()) return std::nullopt;
  std::string name;
  for (size_t at = 0; at <= given.size();) {
    const size_t end = std::min(given.find('/', at), given.size());
    const std::string_view part = given.substr(at, end - at);
    at = end + 1;
    if (part == "..") return std::nullopt;
    if (!part.empty() && part != ".") name += (name.empty() ? "" : "/") + std::string(part);
  }
  return name.empty() || given.ends_with('/') ? std::nullopt : std::optional(name);
}

}  // namespace

Result<Index> DecodeIndex(std::string_view text, const std::string& path) {
  const auto bad = [&](const std::string& what) { return Status(StatusCode::kDataLoss, "'" + path + "': " + what); };
  if (text.size() > kIndexBytesMax)
    return bad("it has " + std::to_string(text.size()) + " bytes, at most " + std::to_string(kIndexBytesMax) +
               " are read");
  KINTSUGI_ASSIGN_OR_RETURN(
      const JsonDocument document,
      JsonDocument::Parse(text, {.place = "'" + path + "'", .code = StatusCode::kDataLoss, .depth_max = kDepthMax}));
  const JsonField root = document.Root();
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField map, root.Get("weight_map"));
  KINTSUGI_ASSIGN_OR_RETURN(const auto tensors, map.Members());
  Index index;
  for (const auto& [tensor, file] : tensors) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string_view name, file.Text());
    auto inside = NameInside(name);
    if (!inside)
      return file.Fail("is '" + PrintableKey(std::string(name)) + "', which is not the name of a file in this folder");
    index.file_of.emplace(tensor, *std::move(inside));
  }
  // Only told, never relied on: other writers put numbers with a point there.
  if (const auto metadata = root.Find("metadata"))
    if (const auto total = metadata->Find("total_size"))
      if (const auto bytes = total->Unsigned(); bytes.ok()) index.total_bytes = *bytes;
  return index;
}

std::string EncodeIndex(const Index& index) {
  for (const auto& [tensor, file] : index.file_of)
    KINTSUGI_CHECK(!file.empty(), "an index says of '" + tensor + "' that no file has it");
  const nlohmann::json json = {{"metadata", {{"total_size", index.total_bytes.value_or(0)}}},
                               {"weight_map", index.file_of}};
  return json.dump(2) + "\n";
}

}  // namespace kintsugi::formats::hub
