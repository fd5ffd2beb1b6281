#include "replica/formats/model_part.h"

#include <nlohmann/json.hpp>

namespace kintsugi::formats {

std::string ModelPart::Encode() const { return nlohmann::json{{"prefix", prefix}, {"copies", copies}}.dump(); }

Result<ModelPart> ModelPart::Decode(std::string_view text, const std::string& place) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  ModelPart part;
  const bool is_one = json.is_object() && json.contains("prefix") && json["prefix"].is_string() &&
                      !json["prefix"].get_ref<const std::string&>().empty() && json.contains("copies") &&
                      json["copies"].is_array();
  if (is_one) {
    part.prefix = json["prefix"].get<std::string>();
    for (const auto& copy : json["copies"])
      if (copy.is_string()) part.copies.insert(copy.get<std::string>());
  }
  if (!is_one || part.copies.size() != json["copies"].size())
    return Status(StatusCode::kDataLoss, place + " does not say which tensors are a run's model");
  return part;
}

}  // namespace kintsugi::formats
