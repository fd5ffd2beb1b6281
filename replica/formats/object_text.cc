#include "replica/formats/object_text.h"

#include <openssl/evp.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"

namespace kintsugi::formats {

using Json = nlohmann::json;

std::string ObjectToText(const CatalogObject& object) {
  KINTSUGI_CHECK(object.data.size() <= kObjectBytesMax, "object '" + object.key + "' has " +
                                                            std::to_string(object.data.size()) + " bytes, at most " +
                                                            std::to_string(kObjectBytesMax) + " were read");
  std::string encoded((object.data.size() + 2) / 3 * 4 + 1, '\0');
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                     reinterpret_cast<const unsigned char*>(object.data.data()),
                                     static_cast<int>(object.data.size()));
  KINTSUGI_CHECK(size >= 0 && static_cast<size_t>(size) + 1 == encoded.size(),
                 "object '" + object.key + "' of " + std::to_string(object.data.size()) + " bytes became " +
                     std::to_string(size) + " of base64");
  encoded.resize(static_cast<size_t>(size));
  Json path = Json::array();
  // Tensors have their names alone here: a place in a list would be one among names. What is no UTF-8 is no text of JSON.
  const bool is_left_out = (!object.path.empty() && object.path.front().IsIndex()) ||
                           std::any_of(object.path.begin(), object.path.end(),
                                       [](const PathPart& part) { return ToUtf8(part.text) != part.text; });
  for (const PathPart& part : is_left_out ? Path() : object.path) {
    const auto kind = part.kind == PathPart::Kind::kValue ? PathPart::Kind::kText : part.kind;  // a key by its text
    path.push_back({{"kind", static_cast<int>(kind)}, {"text", part.text}, {"number", part.number}});
  }
  return Json{{"form", FormName(object.form)}, {"bytes", object.data.size()}, {"data", encoded}, {"path", path}}.dump();
}

static Status ReadJson(const JsonField& field, PathPart* part) {
  uint8_t kind = 0;
  KINTSUGI_RETURN_IF_ERROR(field.Read("kind", &kind, "text", &part->text, "number", &part->number));
  if (kind > static_cast<uint8_t>(PathPart::Kind::kTupleIndex)) return field.Fail("is of no kind of path");
  part->kind = static_cast<PathPart::Kind>(kind);
  return Status::Ok();
}

Result<CatalogObject> ObjectFromText(const std::string& key, const std::string& text) {
  const JsonSource source{.place = "object '" + PrintableKey(key) + "'", .code = StatusCode::kDataLoss};
  const auto bad = [&](const std::string& what) { return source.Refuse(what); };
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, source));
  const JsonField root = document.Root();
  CatalogObject object;
  object.key = key;
  std::string_view form, encoded;
  uint64_t wanted = 0;
  KINTSUGI_RETURN_IF_ERROR(root.Read("form", &form, "data", &encoded, "bytes", &wanted));
  bool known = false;
  for (const auto one : {CatalogObject::Form::kBytes, CatalogObject::Form::kPickle, CatalogObject::Form::kTorch})
    if (FormName(one) == form) {
      object.form = one;
      known = true;
    }
  if (!known) return bad("its form is unknown");
  object.data.resize(encoded.size() / 4 * 3);
  const int size =
      ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(object.data.data()),
                        reinterpret_cast<const unsigned char*>(encoded.data()), static_cast<int>(encoded.size()));
  if (size < 0 || wanted > static_cast<uint64_t>(size) || static_cast<uint64_t>(size) > wanted + 2)
    return bad("its bytes are not base64 of their length");
  object.data.resize(wanted);
  KINTSUGI_RETURN_IF_ERROR(root.ReadIfAny("path", &object.path));
  return object;
}

}  // namespace kintsugi::formats
