#include "replica/formats/safetensors/index.h"

#include <nlohmann/json.hpp>
#include <set>

#include "callbacks/state/key.h"
#include "replica/save/names.h"

namespace kintsugi::formats::safetensors {
namespace {

using Json = nlohmann::json;
constexpr size_t kIndexBytesMax = size_t{256} << 20;
constexpr int kDepthMax = 8;

}  // namespace

Result<Index> DecodeIndex(std::string_view text, const std::string& path) {
  const auto bad = [&](const std::string& what) { return Status(StatusCode::kDataLoss, "'" + path + "': " + what); };
  if (text.size() > kIndexBytesMax)
    return bad("it has " + std::to_string(text.size()) + " bytes, at most " + std::to_string(kIndexBytesMax) +
               " are read");
  std::string deep, twice;
  std::set<std::string> seen;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDepthMax && deep.empty()) deep = "it is nested deeper than " + std::to_string(kDepthMax);
    if (event == Json::parse_event_t::key && depth == 2 && !seen.insert(value.get<std::string>()).second &&
        twice.empty())
      twice = value.get<std::string>();
    return deep.empty();
  };
  const Json root = Json::parse(text.begin(), text.end(), watch, false);
  if (!deep.empty()) return bad(deep);
  if (!root.is_object()) return bad("it is not a JSON object");
  if (!twice.empty()) return bad("'" + PrintableKey(twice) + "' is there twice");
  const auto map = root.find("weight_map");
  if (map == root.end() || !map->is_object()) return bad("it has no weight_map");
  Index index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return bad("weight_map of '" + PrintableKey(tensor) + "' is no file's name");
    const auto& name = file.get_ref<const std::string&>();
    if (!checkpoint::IsPlainName(name))
      return bad("weight_map of '" + PrintableKey(tensor) + "' is '" + PrintableKey(name) +
                 "', which is not the name of a file in this folder");
    index.file_of[tensor] = name;
  }
  if (const auto metadata = root.find("metadata"); metadata != root.end() && metadata->is_object())
    if (const auto total = metadata->find("total_size"); total != metadata->end() && total->is_number_unsigned())
      index.total_bytes = total->get<uint64_t>();
  return index;
}

std::string EncodeIndex(const Index& index) {
  const Json json = {{"metadata", {{"total_size", index.total_bytes.value_or(0)}}}, {"weight_map", index.file_of}};
  return json.dump(2) + "\n";
}

}  // namespace kintsugi::formats::safetensors
