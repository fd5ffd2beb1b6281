#include "replica/save/json_fields.h"

#include <string_view>

#include "replica/save/checksum.h"

namespace kintsugi::checkpoint {
namespace {

constexpr std::string_view kHead = "{\"body\":";
constexpr std::string_view kMiddle = ",\"digest\":\"";
constexpr std::string_view kTail = "\"}\n";
constexpr size_t kDigestDigits = 16;
constexpr size_t kDepthMax = 8;

std::string DigestText(std::string_view body) {
  return ToHex(ChecksumOf({reinterpret_cast<const uint8_t*>(body.data()), body.size()}));
}

// Builds a document as it is read, in time that is proportional to its length: nlohmann's parser with a callback looks
// through all of a list after each of its elements.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;
  explicit Builder(Json* document) : document_(document) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool key(string_t& name) override {
    name_ = std::move(name);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool Add(Json value) {
    *Place() = std::move(value);
    return true;
  }
  bool Open(Json empty) {
    if (open_.size() == kDepthMax) return false;
    Json* const place = Place();
    *place = std::move(empty);
    open_.push_back(place);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  // Where the next value goes. What is open does not move: its own list grows only when it is closed.
  Json* Place() {
    if (open_.empty()) return document_;
    Json& within = *open_.back();
    if (within.is_object()) return &within[name_];
    within.push_back(nullptr);
    return &within.back();
  }

  Json* const document_;
  std::vector<Json*> open_;  // objects and lists, each within the one before
  std::string name_;         // of the next value of an object
};

}  // namespace

Fields::Fields(const Json& object, std::string place, Status* first_mistake)
    : object_(&object), place_(std::move(place)), first_mistake_(first_mistake) {
  if (!object.is_object()) Refuse("is no object");
}

void Fields::Refuse(const std::string& what) {
  if (ok()) *first_mistake_ = {StatusCode::kDataLoss, place_ + " " + what};
}

bool Fields::Has(const char* name) const { return object_->is_object() && object_->contains(name); }

const Fields::Json* Fields::Find(const char* name) {
  if (!ok()) return nullptr;
  const auto found = object_->find(name);
  if (found != object_->end()) return &*found;
  Refuse("lacks '" + std::string(name) + "'");
  return nullptr;
}

uint64_t Fields::Unsigned(const char* name, uint64_t max) {
  const Json* value = Find(name);
  if (!value) return 0;
  if (value->is_number_unsigned() && value->get<uint64_t>() <= max) return value->get<uint64_t>();
  Refuse("has no number from 0 to " + std::to_string(max) + " in '" + name + "'");
  return 0;
}

bool Fields::Bool(const char* name) {
  const Json* value = Find(name);
  if (!value) return false;
  if (value->is_boolean()) return value->get<bool>();
  Refuse("has no true or false in '" + std::string(name) + "'");
  return false;
}

std::string Fields::Text(const char* name, size_t size_max) {
  const Json* value = Find(name);
  if (!value) return {};
  if (value->is_string() && value->get_ref<const std::string&>().size() <= size_max) return value->get<std::string>();
  Refuse("has no text of at most " + std::to_string(size_max) + " bytes in '" + name + "'");
  return {};
}

std::vector<int64_t> Fields::Numbers(const char* name, size_t count_max) {
  std::vector<int64_t> numbers;
  const Json* value = Find(name);
  if (!value) return numbers;
  bool good = value->is_array() && value->size() <= count_max;
  for (size_t i = 0; good && i < value->size(); ++i) {
    const Json& number = (*value)[i];
    good = number.is_number_unsigned() && number.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    if (good) numbers.push_back(number.get<int64_t>());
  }
  if (!good) Refuse("has no list of at most " + std::to_string(count_max) + " numbers in '" + name + "'");
  return numbers;
}

std::vector<std::string> Fields::Texts(const char* name, size_t size_max) {
  std::vector<std::string> texts;
  const Json* value = Find(name);
  if (!value) return texts;
  bool good = value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    good = (*value)[i].is_string() && (*value)[i].get_ref<const std::string&>().size() <= size_max;
    if (good) texts.push_back((*value)[i]);
  }
  if (!good) Refuse("has no list of texts of at most " + std::to_string(size_max) + " bytes in '" + name + "'");
  return texts;
}

std::vector<Rank> Fields::Ranks(const char* name, int limit) {
  std::vector<Rank> ranks;
  for (int64_t number : Numbers(name, static_cast<size_t>(limit))) {
    if (number >= limit || (!ranks.empty() && number <= ranks.back().value())) {
      Refuse("has ranks in '" + std::string(name) + "' that do not ascend or are not below " + std::to_string(limit));
      return {};
    }
    ranks.emplace_back(static_cast<int32_t>(number));
  }
  return ranks;
}

std::vector<Fields> Fields::Objects(const char* name) {
  std::vector<Fields> objects;
  const Json* value = Find(name);
  if (!value) return objects;
  if (!value->is_array()) {
    Refuse("has no list in '" + std::string(name) + "'");
    return objects;
  }
  for (size_t i = 0; i < value->size() && ok(); ++i)
    objects.emplace_back((*value)[i], place_ + " " + name + "[" + std::to_string(i) + "]", first_mistake_);
  return ok() ? std::move(objects) : std::vector<Fields>();
}

std::string Seal(const std::string& body) {
  std::string text;
  text.reserve(body.size() + 64);
  return text.append(kHead).append(body).append(kMiddle).append(DigestText(body)).append(kTail);
}

Result<nlohmann::json> Unseal(const std::string& text, const std::string& name) {
  const auto bad = [&](const char* what) {
    return Status(StatusCode::kDataLoss, "'" + name + "' " + what + ": use another checkpoint");
  };
  const size_t frame = kHead.size() + kMiddle.size() + kDigestDigits + kTail.size();
  const std::string_view view(text);
  if (view.size() < frame || !view.starts_with(kHead) || !view.ends_with(kTail)) return bad("is torn");
  const std::string_view body = view.substr(kHead.size(), view.size() - frame);
  const std::string_view rest = view.substr(kHead.size() + body.size());
  if (!rest.starts_with(kMiddle)) return bad("is torn");
  if (rest.substr(kMiddle.size(), kDigestDigits) != DigestText(body)) return bad("does not match its own digest");
  nlohmann::json parsed;
  Builder builder(&parsed);
  if (!nlohmann::json::sax_parse(body.begin(), body.end(), &builder)) return bad("is no JSON, or nested too deep");
  return parsed;
}

}  // namespace kintsugi::checkpoint
