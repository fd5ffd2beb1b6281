#include "replica/formats/object_text.h"

#include <openssl/evp.h>

#include <nlohmann/json.hpp>

#include "callbacks/state/key.h"

namespace kintsugi::formats {

using Json = nlohmann::json;

std::string ObjectToText(const CatalogObject& object) {
  std::string encoded((object.data.size() + 2) / 3 * 4 + 1, '\0');
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                     reinterpret_cast<const unsigned char*>(object.data.data()),
                                     static_cast<int>(object.data.size()));
  encoded.resize(static_cast<size_t>(size));
  Json path = Json::array();
  for (const PathPart& part : object.path)
    path.push_back({{"kind", static_cast<int>(part.kind)}, {"text", part.text}, {"number", part.number}});
  return Json{{"form", FormName(object.form)}, {"bytes", object.data.size()}, {"data", encoded}, {"path", path}}.dump();
}

Result<CatalogObject> ObjectFromText(const std::string& key, const std::string& text) {
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss, "object '" + PrintableKey(key) + "': " + what);
  };
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return bad("its field is not JSON");
  CatalogObject object;
  object.key = key;
  const std::string form = json.value("form", Json()).is_string() ? json["form"].get<std::string>() : "";
  bool known = false;
  for (const auto one : {CatalogObject::Form::kBytes, CatalogObject::Form::kPickle, CatalogObject::Form::kTorch})
    if (FormName(one) == form) {
      object.form = one;
      known = true;
    }
  if (!known) return bad("its form is unknown");
  const Json data = json.value("data", Json()), bytes = json.value("bytes", Json());
  if (!data.is_string() || !bytes.is_number_unsigned()) return bad("its bytes are missing");
  const auto& encoded = data.get_ref<const std::string&>();
  object.data.resize(encoded.size() / 4 * 3);
  const int size =
      ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(object.data.data()),
                        reinterpret_cast<const unsigned char*>(encoded.data()), static_cast<int>(encoded.size()));
  const uint64_t wanted = bytes.get<uint64_t>();
  if (size < 0 || wanted > static_cast<uint64_t>(size) || static_cast<uint64_t>(size) > wanted + 2)
    return bad("its bytes are not base64 of their length");
  object.data.resize(wanted);
  for (const Json& part : json.value("path", Json::array())) {
    if (!part.is_object() || !part.value("kind", Json()).is_number_unsigned() || part["kind"].get<uint64_t>() > 2 ||
        !part.value("text", Json()).is_string() || !part.value("number", Json()).is_number_integer())
      return bad("its path is none");
    object.path.push_back({static_cast<PathPart::Kind>(part["kind"].get<int>()), part["text"].get<std::string>(),
                           part["number"].get<int64_t>()});
  }
  return object;
}

}  // namespace kintsugi::formats
