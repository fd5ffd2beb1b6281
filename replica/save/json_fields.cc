#include "replica/save/json_fields.h"

#include <simdjson.h>

#include <bit>
#include <type_traits>

#include "replica/save/checksum.h"

namespace kintsugi::checkpoint {
namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kHead = "{\"body\":";
constexpr std::string_view kMiddle = ",\"digest\":\"";
constexpr std::string_view kTail = "\"}\n";
constexpr size_t kDigestDigits = 16;
// What is open when the innermost value is read.
constexpr size_t kDepthMax = 8;

std::string DigestText(std::string_view body) {
  return ToHex(ChecksumOf({reinterpret_cast<const uint8_t*>(body.data()), body.size()}));
}

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// The parser's handle has no public parts, and no other way in and out than as a whole.
static_assert(std::is_trivially_copyable_v<dom::element> && sizeof(dom::element) == sizeof(JsonValue));
JsonValue Outside(dom::element value) { return std::bit_cast<JsonValue>(value); }
dom::element Inside(const JsonValue& value) { return std::bit_cast<dom::element>(value); }

std::optional<std::string_view> TextOf(dom::element value, size_t size_max) {
  std::string_view text;
  if (value.get_string().get(text) || text.size() > size_max) return std::nullopt;
  return text;
}

}  // namespace

Fields::Fields(JsonValue value, std::string place, Status* first_mistake)
    : place_(std::move(place)), first_mistake_(first_mistake) {
  if (Inside(value).is_object())
    object_ = value;
  else
    Refuse("is no object");
}

void Fields::Refuse(std::string_view what) {
  if (ok()) *first_mistake_ = {StatusCode::kDataLoss, place_ + " " + std::string(what)};
}

void Fields::RefuseField(std::string_view what, std::string_view name) {
  if (ok()) Refuse("has no " + std::string(what) + " in " + Quoted(name));
}

std::optional<JsonValue> Fields::Find(std::string_view name) const {
  std::optional<JsonValue> found;
  dom::object object;
  if (!object_ || Inside(*object_).get_object().get(object)) return found;
  for (const auto& [key, value] : object)
    if (key == name) found = Outside(value);
  return found;
}

std::optional<JsonValue> Fields::Need(std::string_view name) {
  if (!ok()) return std::nullopt;
  const auto found = Find(name);
  if (!found) Refuse("lacks " + Quoted(name));
  return found;
}

uint64_t Fields::Unsigned(std::string_view name, uint64_t max) {
  const auto value = Need(name);
  uint64_t number = 0;
  if (!value || (!Inside(*value).get_uint64().get(number) && number <= max)) return number;
  RefuseField("number from 0 to " + std::to_string(max), name);
  return 0;
}

bool Fields::Bool(std::string_view name) {
  const auto value = Need(name);
  bool flag = false;
  if (value && Inside(*value).get_bool().get(flag)) RefuseField("true or false", name);
  return flag;
}

std::string_view Fields::Text(std::string_view name, size_t size_max) {
  const auto value = Need(name);
  if (!value) return {};
  if (const auto text = TextOf(Inside(*value), size_max)) return *text;
  RefuseField("text of at most " + std::to_string(size_max) + " bytes", name);
  return {};
}

std::vector<std::string> Fields::Texts(std::string_view name, size_t size_max) {
  std::vector<std::string> texts;
  const auto value = Need(name);
  if (!value) return texts;
  dom::array list;
  bool good = !Inside(*value).get_array().get(list);
  if (good)
    for (const dom::element entry : list) {
      const auto text = TextOf(entry, size_max);
      good = text.has_value();
      if (!good) break;
      texts.emplace_back(*text);
    }
  if (!good) RefuseField("list of texts of at most " + std::to_string(size_max) + " bytes", name);
  return texts;
}

std::vector<int64_t> Fields::Numbers(std::string_view name, size_t count_max) {
  std::vector<int64_t> numbers;
  const auto value = Need(name);
  if (!value) return numbers;
  dom::array list;
  bool good = !Inside(*value).get_array().get(list);
  if (good)
    for (const dom::element entry : list) {
      int64_t number = 0;
      good = numbers.size() < count_max && !entry.get_int64().get(number) && number >= 0;
      if (!good) break;
      numbers.push_back(number);
    }
  if (!good) RefuseField("list of at most " + std::to_string(count_max) + " numbers", name);
  return numbers;
}

std::vector<Rank> Fields::Ranks(std::string_view name, int limit) {
  std::vector<Rank> ranks;
  for (int64_t number : Numbers(name, static_cast<size_t>(limit))) {
    if (number >= limit || (!ranks.empty() && number <= ranks.back().value())) {
      Refuse("has ranks in " + Quoted(name) + " that do not ascend or are not below " + std::to_string(limit));
      return {};
    }
    ranks.emplace_back(static_cast<int32_t>(number));
  }
  return ranks;
}

std::vector<Fields> Fields::Objects(std::string_view name) {
  std::vector<Fields> objects;
  const auto value = Need(name);
  if (!value) return objects;
  dom::array list;
  if (Inside(*value).get_array().get(list)) {
    RefuseField("list", name);
    return objects;
  }
  const std::string place = place_ + " " + std::string(name) + "[";
  for (const dom::element entry : list) {
    objects.emplace_back(Outside(entry), place + std::to_string(objects.size()) + "]", first_mistake_);
    if (!ok()) return {};
  }
  return objects;
}

struct JsonDocument::Parser {
  dom::parser parser;
};

JsonDocument::JsonDocument(std::unique_ptr<Parser> parser, JsonValue root, std::string name)
    : parser_(std::move(parser)), root_(root), name_(std::move(name)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

Result<JsonDocument> JsonDocument::Parse(std::string_view text, std::string_view name) {
  auto own = std::make_unique<Parser>();
  dom::element root;
  auto error = own->parser.allocate(text.size(), kDepthMax + 1);
  if (!error) error = own->parser.parse(text.data(), text.size()).get(root);
  if (!error) return JsonDocument(std::move(own), Outside(root), std::string(name));
  if (error == simdjson::MEMALLOC)
    return Status(StatusCode::kResourceExhausted,
                  Quoted(name) + " cannot be read: no memory for JSON of " + std::to_string(text.size()) + " bytes");
  return Status(StatusCode::kDataLoss, Quoted(name) + " is no JSON, or nested too deep: use another checkpoint");
}

std::string Seal(const std::string& body) {
  std::string text;
  text.reserve(body.size() + 64);
  return text.append(kHead).append(body).append(kMiddle).append(DigestText(body)).append(kTail);
}

Result<std::string_view> SealedBody(std::string_view text, std::string_view name) {
  const auto bad = [&](const char* what) {
    return Status(StatusCode::kDataLoss, Quoted(name) + " " + what + ": use another checkpoint");
  };
  const size_t frame = kHead.size() + kMiddle.size() + kDigestDigits + kTail.size();
  if (text.size() < frame || !text.starts_with(kHead) || !text.ends_with(kTail)) return bad("is torn");
  const std::string_view body = text.substr(kHead.size(), text.size() - frame);
  const std::string_view rest = text.substr(kHead.size() + body.size());
  if (!rest.starts_with(kMiddle)) return bad("is torn");
  if (rest.substr(kMiddle.size(), kDigestDigits) != DigestText(body)) return bad("does not match its own digest");
  return body;
}

Result<JsonDocument> Unseal(std::string_view text, std::string_view name) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string_view body, SealedBody(text, name));
  return JsonDocument::Parse(body, name);
}

}  // namespace kintsugi::checkpoint
