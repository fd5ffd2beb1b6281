#include "replica/formats/model_part.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "callbacks/state/key.h"
#include "replica/aoa/engine.h"

namespace kintsugi::formats {
namespace {

using Names = std::set<std::string, std::less<>>;

// False where there is something else than a list of different texts.
bool TakeNames(const nlohmann::json& json, const char* field, bool must_be_there, Names* names) {
  const auto found = json.find(field);
  if (found == json.end()) return !must_be_there;
  if (!found->is_array()) return false;
  for (const auto& name : *found)
    if (!name.is_string() || !names->insert(name.get<std::string>()).second) return false;
  return true;
}

}  // namespace

std::string ModelPart::Encode(const std::vector<std::string>* own) const {
  nlohmann::json json{{"prefix", prefix}, {"copies", copies}};
  if (!renamed.empty()) json["renamed"] = renamed;
  if (own) json["model"] = *own;
  return json.dump();
}

Result<ModelPart> ModelPart::Decode(std::string_view text, const std::string& place, Names* own) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  ModelPart part;
  bool is_one = json.is_object() && json.contains("prefix") && json["prefix"].is_string() &&
                !json["prefix"].get_ref<const std::string&>().empty();
  if (is_one) part.prefix = json["prefix"].get<std::string>();
  is_one = is_one && TakeNames(json, "copies", true, &part.copies) &&
           TakeNames(json, "renamed", false, &part.renamed) &&
           (!own || TakeNames(json, "model", true, own));
  if (!is_one) return Status(StatusCode::kDataLoss, place + " does not say which tensors are a run's model");
  return part;
}

Status FollowProgram(const aoa::Engine& program, ModelPart* part) {
  const auto is_copy = [part, copies = part->copies](const std::string& key) {
    return key.starts_with(part->prefix) && copies.contains(part->OwnName(key));
  };
  const auto is_models = [part](const std::string& key) { return key.starts_with(part->prefix); };
  part->copies.clear();
  std::map<std::string, std::string_view> keys;  // by their own names
  for (const auto& [key, output] : program.outputs()) {
    if (output.is_added || !output.is_stored || output.follows) continue;
    const std::vector<std::string> sources = program.SourcesOf(key);
    if (!is_models(key)) {
      if (sources.empty() || !std::all_of(sources.begin(), sources.end(), is_models)) continue;
      part->renamed.insert(key);
    }
    const std::string own = part->OwnName(key);
    if (const auto [other, is_new] = keys.emplace(own, key); !is_new)
      return {StatusCode::kInvalidArgument, "the program makes '" + PrintableKey(std::string(other->second)) +
                                                "' and '" + PrintableKey(key) + "', which would both be saved as '" +
                                                PrintableKey(own) + "': give one of them another name"};
    if (!sources.empty() && std::all_of(sources.begin(), sources.end(), is_copy)) part->copies.insert(own);
  }
  return Status::Ok();
}

}  // namespace kintsugi::formats
