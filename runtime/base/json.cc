#include "runtime/base/json.h"

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

namespace dom = simdjson::dom;
using dom::element_type;
using Json = nlohmann::json;

constexpr size_t kShownMax = 60;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kRootPlace = 1;  // behind the word that begins the tape

// The parser's handle has no public parts, and no other way in and out than as a whole.
struct Handle {
  const dom::document* document;
  size_t place;
};
static_assert(std::is_trivially_copyable_v<dom::element> && sizeof(dom::element) == sizeof(Handle));
dom::element ElementAt(const dom::document& document, size_t place) {
  return std::bit_cast<dom::element>(Handle{&document, place});
}
size_t PlaceOf(dom::element value) { return std::bit_cast<Handle>(value).place; }

dom::array ArrayOf(dom::element value) {
  dom::array list;
  KINTSUGI_CHECK(!value.get_array().get(list), "no list");
  return list;
}
dom::object ObjectOf(dom::element value) {
  dom::object object;
  KINTSUGI_CHECK(!value.get_object().get(object), "no object");
  return object;
}

std::string TooDeep(int depth_max) { return "more than " + std::to_string(depth_max) + " levels"; }

// What nlohmann's parser says of a text that simdjson's refuses without a word where: the text is read a second time, for
// the message alone.
class WordsForIt final : public nlohmann::json_sax<Json> {
 public:
  explicit WordsForIt(int depth_max) : depth_max_(depth_max) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return true;
    return Say("the whole number " + text.substr(0, kShownMax) + " has more than 64 bits");
  }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  // Without the exception's number.
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& exception) override {
    const std::string_view words = exception.what();
    const size_t after = words.find("] ");
    return Say(std::string(after == std::string_view::npos ? words : words.substr(after + 2)));
  }
  const std::string& words() const { return words_; }

 private:
  bool Say(std::string words) {
    words_ = std::move(words);
    return false;
  }
  bool Open() { return depth_++ <= depth_max_ || Say(TooDeep(depth_max_)); }
  bool Close() {
    --depth_;
    return true;
  }

  const int depth_max_;
  int depth_ = 0;
  std::string words_;
};

constexpr size_t kFew = 32;

// Of few names, nearly always each differs from the others in length or at its ends.
std::optional<std::string_view> TwinAmongFew(const dom::object& object) {
  std::bitset<256> seen;
  for (auto at = object.begin(); at != object.end(); ++at) {
    const std::string_view name = at.key();
    const auto byte = [&](size_t index) { return static_cast<size_t>(static_cast<unsigned char>(name[index])); };
    const size_t mark =
        name.empty() ? 0 : (name.size() * 31 + byte(0) * 3 + byte(name.size() / 2) * 7 + byte(name.size() - 1)) % 256;
    if (seen[mark])
      for (auto other = object.begin(); other != at; ++other)
        if (other.key() == name) return name;
    seen.set(mark);
  }
  return std::nullopt;
}

// Hashes first: names of a million tensors begin alike. Of equal hashes the names decide, so that none can be chosen to take
// long.
std::optional<std::string_view> TwinAmongMany(const dom::object& object) {
  std::vector<std::pair<size_t, std::string_view>> names;
  names.reserve(object.size());
  for (auto at = object.begin(); at != object.end(); ++at)
    names.emplace_back(std::hash<std::string_view>()(at.key()), at.key());
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  return twin == names.end() ? std::nullopt : std::optional(twin->second);
}

// The name of two members of one object, anywhere in `value`. No deeper than a document is.
std::optional<std::string_view> TwinIn(dom::element value) {
  if (value.is_array()) {
    for (const dom::element entry : ArrayOf(value))
      if (entry.is_array() || entry.is_object())
        if (const auto twin = TwinIn(entry)) return twin;
  } else if (value.is_object()) {
    const dom::object object = ObjectOf(value);
    if (const auto twin = object.size() <= kFew ? TwinAmongFew(object) : TwinAmongMany(object)) return twin;
    for (auto at = object.begin(); at != object.end(); ++at)
      if (const dom::element member = at.value(); member.is_array() || member.is_object())
        if (const auto twin = TwinIn(member)) return twin;
  }
  return std::nullopt;
}

// What comes from a file and is shown to people; a terminal obeys some characters.
std::string Printable(std::string_view name) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F)
      text.append("\\u00") += {kDigits[byte / 16], kDigits[byte % 16]};
    else
      text += c;
  }
  return text;
}

// Of a JSON pointer.
std::string Escaped(std::string_view name) {
  std::string text;
  for (const char c : Printable(name)) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

// From `value` down to the one at `place`: values lie in the order of the text, one that holds others in front of them.
std::string PointerFrom(dom::element value, size_t place) {
  std::string pointer;
  while (PlaceOf(value) != place) {
    std::string step;
    if (value.is_array()) {
      size_t index = 0;
      for (const dom::element entry : ArrayOf(value)) {
        if (PlaceOf(entry) > place) break;
        value = entry;
        step = std::to_string(index++);
      }
    } else {
      for (const auto [name, member] : ObjectOf(value)) {
        if (PlaceOf(member) > place) break;
        value = member;
        step = Escaped(name);
      }
    }
    pointer += "/" + step;
  }
  return pointer;
}

}  // namespace

Status JsonSource::Refuse(const std::string& what) const {
  return {code, (place.empty() ? "" : place + ": ") + what + (remedy.empty() ? "" : ": " + remedy)};
}

struct JsonDocument::Content {
  JsonSource source;
  dom::document document;

  dom::element At(size_t place) const { return ElementAt(document, place); }
};

JsonDocument::JsonDocument(std::unique_ptr<Content> content) : content_(std::move(content)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;
JsonField JsonDocument::Root() const { return JsonField(*content_, kRootPlace); }

Result<JsonDocument> JsonDocument::Parse(std::string_view text, JsonSource source) {
  if (text.empty()) text = "";  // at no address: the parser would copy from there
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  auto content = std::make_unique<Content>();
  dom::parser parser;
  dom::element root;
  // The innermost value counts as a level.
  auto error = parser.allocate(text.size(), static_cast<size_t>(source.depth_max) + 1);
  if (!error) error = parser.parse_into_document(content->document, text.data(), text.size()).get(root);
  if (error == simdjson::MEMALLOC)
    return JsonSource{.place = source.place, .code = StatusCode::kResourceExhausted}.Refuse(
        "no memory for JSON of " + std::to_string(text.size()) + " bytes");
  if (error == simdjson::DEPTH_ERROR) return source.Refuse("not JSON: " + TooDeep(source.depth_max));
  if (error) {
    WordsForIt reader(source.depth_max);
    Json::sax_parse(text.begin(), text.end(), &reader);
    return source.Refuse("not JSON: " + (reader.words().empty() ? simdjson::error_message(error) : reader.words()));
  }
  if (const auto twin = TwinIn(root))
    return source.Refuse("not JSON: the member '" + Printable(twin->substr(0, kShownMax)) + "' is there twice");
  content->source = std::move(source);
  return JsonDocument(std::move(content));
}

std::string JsonField::Pointer() const {
  return place_ == kRootPlace ? "the document" : PointerFrom(content_->At(kRootPlace), place_);
}

Status JsonField::Fail(const std::string& what) const { return content_->source.Refuse(Pointer() + ": " + what); }

std::string JsonField::Shown() const {
  const dom::element value = content_->At(place_);
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list of " + std::to_string(ArrayOf(value).size());
  std::string text = simdjson::minify(value);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

Status JsonField::FailAs(const std::string& wanted) const { return Fail("is " + Shown() + ", but must be " + wanted); }

std::string_view JsonField::Kind() const {
  switch (content_->At(place_).type()) {
    case element_type::OBJECT:
      return "object";
    case element_type::ARRAY:
      return "array";
    case element_type::STRING:
      return "string";
    case element_type::BOOL:
      return "boolean";
    case element_type::NULL_VALUE:
      return "null";
    default:
      return "number";
  }
}

bool JsonField::IsWhole() const {
  const dom::element value = content_->At(place_);
  return value.is_int64() || value.is_uint64();
}

Status JsonField::CheckMembers(std::initializer_list<std::string_view> names) const {
  dom::object object;
  if (content_->At(place_).get_object().get(object)) return FailAs("an object");
  for (auto at = object.begin(); at != object.end(); ++at)
    if (const std::string_view name = at.key(); std::find(names.begin(), names.end(), name) == names.end()) {
      std::string known;
      for (const std::string_view one : names) known += (known.empty() ? "" : ", ") + std::string(one);
      return Fail("has the unknown member '" + Printable(name.substr(0, kShownMax)) + "'; known are " + known);
    }
  return Status::Ok();
}

std::optional<JsonField> JsonField::Find(std::string_view name) const {
  dom::object object;
  dom::element found;
  if (content_->At(place_).get_object().get(object) || object.at_key(name).get(found) || found.is_null())
    return std::nullopt;
  return JsonField(*content_, PlaceOf(found));
}

Result<JsonField> JsonField::Get(std::string_view name) const {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField field, Member(name));
  if (field.IsNull()) return Fail("lacks the member '" + std::string(name) + "'");
  return field;
}

Result<JsonField> JsonField::Member(std::string_view name) const {
  dom::object object;
  dom::element found;
  if (content_->At(place_).get_object().get(object)) return FailAs("an object");
  if (object.at_key(name).get(found)) return Fail("lacks the member '" + std::string(name) + "'");
  return JsonField(*content_, PlaceOf(found));
}

Result<std::vector<std::pair<std::string_view, JsonField>>> JsonField::Members() const {
  dom::object object;
  if (content_->At(place_).get_object().get(object)) return FailAs("an object");
  std::vector<std::pair<std::string_view, JsonField>> members;
  for (const auto [name, value] : object) members.emplace_back(name, JsonField(*content_, PlaceOf(value)));
  return members;
}

Result<std::vector<JsonField>> JsonField::List() const {
  dom::array list;
  if (content_->At(place_).get_array().get(list)) return FailAs("a list");
  std::vector<JsonField> fields;
  fields.reserve(list.size());
  for (const dom::element entry : list) fields.push_back(JsonField(*content_, PlaceOf(entry)));
  return fields;
}

Result<std::vector<JsonField>> JsonField::ListOf(std::string_view name) const {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField list, Member(name));
  return list.List();
}

Result<int64_t> JsonField::Integer(int64_t min, int64_t max) const {
  int64_t number = 0;
  if (content_->At(place_).get_int64().get(number)) return FailAs("a whole number of 63 bits");
  if (number < min || number > max) return FailAs("from " + std::to_string(min) + " to " + std::to_string(max));
  return number;
}

Result<uint64_t> JsonField::Unsigned(uint64_t max) const {
  uint64_t number = 0;
  if (content_->At(place_).get_uint64().get(number) || number > max)
    return FailAs("a whole number from 0 to " + std::to_string(max));
  return number;
}

Result<std::vector<int64_t>> JsonField::Integers(size_t count_max, int64_t min) const {
  dom::array list;
  if (content_->At(place_).get_array().get(list)) return FailAs("a list");
  if (list.size() > count_max)
    return Fail("has " + std::to_string(list.size()) + " entries, but may have " + std::to_string(count_max));
  std::vector<int64_t> numbers;
  numbers.reserve(list.size());
  for (const dom::element entry : list) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t number, JsonField(*content_, PlaceOf(entry)).Integer(min));
    numbers.push_back(number);
  }
  return numbers;
}

Result<double> JsonField::Real() const {
  double number = 0;
  if (content_->At(place_).get_double().get(number)) return FailAs("a number");
  return number;
}

Result<std::string_view> JsonField::Text(size_t bytes_max) const {
  std::string_view text;
  if (content_->At(place_).get_string().get(text)) return FailAs("a text");
  if (text.size() > bytes_max) return FailAs("a text of at most " + std::to_string(bytes_max) + " bytes");
  return text;
}

Result<std::vector<std::string>> JsonField::Texts(size_t bytes_max) const {
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> entries, List());
  std::vector<std::string> texts;
  texts.reserve(entries.size());
  for (const JsonField& entry : entries) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string_view text, entry.Text(bytes_max));
    texts.emplace_back(text);
  }
  return texts;
}

Result<bool> JsonField::Bool() const {
  bool flag = false;
  if (content_->At(place_).get_bool().get(flag)) return FailAs("true or false");
  return flag;
}

Json JsonField::Copy() const {
  const dom::element value = content_->At(place_);
  switch (value.type()) {
    case element_type::OBJECT: {
      Json copy = Json::object();
      for (const auto [name, member] : ObjectOf(value))
        copy.emplace(name, JsonField(*content_, PlaceOf(member)).Copy());
      return copy;
    }
    case element_type::ARRAY: {
      Json copy = Json::array();
      for (const dom::element entry : ArrayOf(value)) copy.push_back(JsonField(*content_, PlaceOf(entry)).Copy());
      return copy;
    }
    case element_type::STRING:
      return std::string(std::string_view(value.get_string().value_unsafe()));
    case element_type::INT64: {
      // As nlohmann's own parser has it, which takes what is not negative for unsigned.
      const int64_t number = value.get_int64().value_unsafe();
      return number < 0 ? Json(number) : Json(static_cast<uint64_t>(number));
    }
    case element_type::UINT64:
      return value.get_uint64().value_unsafe();
    case element_type::DOUBLE:
      return value.get_double().value_unsafe();
    case element_type::BOOL:
      return value.get_bool().value_unsafe();
    default:
      return nullptr;
  }
}

Status ReadJson(const JsonField& field, std::string* text) { return ReadJson(field, AtMost(text, SIZE_MAX)); }
Status ReadJson(const JsonField& field, std::string_view* text) { return ReadJson(field, AtMost(text, SIZE_MAX)); }

Status ReadJson(const JsonField& field, double* number) {
  KINTSUGI_ASSIGN_OR_RETURN(*number, field.Real());
  return Status::Ok();
}

Status ReadJson(const JsonField& field, bool* flag) {
  KINTSUGI_ASSIGN_OR_RETURN(*flag, field.Bool());
  return Status::Ok();
}

Status ReadJson(const JsonField& field, JsonAtMost<std::string> text) {
  KINTSUGI_ASSIGN_OR_RETURN(*text.into, field.Text(text.max));
  return Status::Ok();
}

Status ReadJson(const JsonField& field, JsonAtMost<std::string_view> text) {
  KINTSUGI_ASSIGN_OR_RETURN(*text.into, field.Text(text.max));
  return Status::Ok();
}

Status ReadJson(const JsonField& field, JsonAtMost<std::vector<int64_t>> numbers) {
  KINTSUGI_ASSIGN_OR_RETURN(*numbers.into, field.Integers(numbers.max, 0));
  return Status::Ok();
}

}  // namespace kintsugi
