#include "runtime/base/json.h"

#include <algorithm>

namespace kintsugi {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownMax = 60;

// What the parser's own exceptions say, without their numbers.
std::string Tell(const std::string& what) {
  const size_t after = what.find("] ");
  return after == std::string::npos ? what : what.substr(after + 2);
}

std::string Escaped(std::string_view name) {
  std::string text;
  for (const char c : name) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

// Builds the document. The library's own parser can do so too, but with a callback, which duplicates and depth would
// need, it looks through all of an object's members after each of them.
class DocumentBuilder final : public nlohmann::json_sax<Json> {
 public:
  DocumentBuilder(const JsonSource& source, JsonEntryTaker* taker) : source_(source), taker_(taker) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (!IsShallow()) return false;
    auto& members = open_.back()->get_ref<Json::object_t&>();
    const auto [at, is_new] = members.emplace(std::move(name), nullptr);
    if (!is_new) return Refuse("the member '" + at->first.substr(0, kShownMax) + "' is there twice");
    next_ = &at->second;
    if (open_.size() == 1) list_ = at->first;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& exception) override {
    problem_ = Tell(exception.what());
    return false;
  }

  Result<Json> Document() && {
    if (!refused_.ok()) return refused_;
    if (problem_.empty()) return std::move(document_);
    return source_.Refuse("not JSON: " + problem_);
  }

 private:
  bool Refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool IsShallow() {
    return open_.size() <= static_cast<size_t>(source_.depth_max) ||
           Refuse("more than " + std::to_string(source_.depth_max) + " levels");
  }

  // Puts a value where the next one belongs.
  Json* Place(Json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    if (!open_.back()->is_array()) {
      *next_ = std::move(value);
      return next_;
    }
    auto& entries = open_.back()->get_ref<Json::array_t&>();
    entries.push_back(std::move(value));
    return &entries.back();
  }
  bool Add(Json value) {
    if (!IsShallow()) return false;
    Place(std::move(value));
    return Ended();
  }
  bool Open(Json value) {
    if (!IsShallow()) return false;
    open_.push_back(Place(std::move(value)));
    if (taker_ && open_.size() == 2) {
      takes_ = open_.back()->is_array() && document_.is_object() && taker_->Takes(document_, list_);
      taken_ = 0;
    }
    return true;
  }
  bool Close() {
    open_.pop_back();
    return Ended();
  }
  // A value is complete.
  bool Ended() {
    if (open_.size() != 2 || !takes_ || !open_.back()->is_array()) return true;
    auto& entries = open_.back()->get_ref<Json::array_t&>();
    refused_ = JsonField::WithEntry(document_, source_, list_, taken_++, entries.back(),
                                    [this](const JsonField& entry) { return taker_->Take(list_, entry); });
    entries.pop_back();
    return refused_.ok();
  }

  const JsonSource& source_;
  JsonEntryTaker* const taker_;
  Json document_;
  std::vector<Json*> open_;
  Json* next_ = nullptr;
  std::string list_;  // the member of the document that is open
  bool takes_ = false;
  size_t taken_ = 0;
  std::string problem_;
  Status refused_;
};

}  // namespace

Status JsonSource::Refuse(const std::string& what) const {
  return {code, (place.empty() ? "" : place + ": ") + what + (remedy.empty() ? "" : ": " + remedy)};
}

Result<Json> ParseJson(std::string_view text, const JsonSource& source, JsonEntryTaker* taker) {
  DocumentBuilder builder(source, taker);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).Document();
}

Status JsonField::WithEntry(const Json& document, const JsonSource& source, const std::string& name, size_t index,
                            const Json& entry, const std::function<Status(const JsonField&)>& use) {
  const JsonField root(document, source);
  const JsonField list(document, root, name, 0);
  return use(JsonField(entry, list, "", index));
}

std::string JsonField::Pointer() const {
  if (!parent_) return "the document";
  return (parent_->parent_ ? parent_->Pointer() : "") + "/" + (name_.empty() ? std::to_string(index_) : Escaped(name_));
}

Status JsonField::Fail(const std::string& what) const {
  const JsonField* root = this;
  while (root->parent_) root = root->parent_;
  return (root->source_ ? *root->source_ : JsonSource()).Refuse(Pointer() + ": " + what);
}

std::string JsonField::Shown() const {
  if (value_->is_object()) return "an object";
  if (value_->is_array()) return "a list of " + std::to_string(value_->size());
  std::string text = value_->dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

Status JsonField::CheckIsObject() const {
  return value_->is_object() ? Status::Ok() : Fail("is " + Shown() + ", but must be an object");
}

Status JsonField::CheckMembers(std::initializer_list<std::string_view> names) const {
  KINTSUGI_RETURN_IF_ERROR(CheckIsObject());
  for (const auto& [name, value] : value_->items())
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      std::string known;
      for (const std::string_view one : names) known += (known.empty() ? "" : ", ") + std::string(one);
      return Fail("has the unknown member '" + name.substr(0, kShownMax) + "'; known are " + known);
    }
  return Status::Ok();
}

std::optional<JsonField> JsonField::Find(const char* name) const {
  const auto found = value_->find(name);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonField(*found, *this, name, 0);
}

Result<JsonField> JsonField::Get(const char* name) const {
  KINTSUGI_RETURN_IF_ERROR(CheckIsObject());
  const auto found = Find(name);
  if (!found) return Fail(std::string("lacks the member '") + name + "'");
  return *found;
}

Result<JsonField> JsonField::Member(const char* name) const {
  KINTSUGI_RETURN_IF_ERROR(CheckIsObject());
  const auto found = value_->find(name);
  if (found == value_->end()) return Fail(std::string("lacks the member '") + name + "'");
  return JsonField(*found, *this, name, 0);
}

Result<std::vector<std::pair<std::string, JsonField>>> JsonField::Members() const {
  KINTSUGI_RETURN_IF_ERROR(CheckIsObject());
  std::vector<std::pair<std::string, JsonField>> members;
  for (auto at = value_->begin(); at != value_->end(); ++at)
    members.emplace_back(at.key(), JsonField(at.value(), *this, at.key(), 0));
  return members;
}

Result<std::vector<JsonField>> JsonField::List() const {
  if (!value_->is_array()) return Fail("is " + Shown() + ", but must be a list");
  std::vector<JsonField> fields;
  fields.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) fields.push_back(JsonField((*value_)[i], *this, "", i));
  return fields;
}

Result<int64_t> JsonField::Integer(int64_t min, int64_t max) const {
  const bool fits = value_->is_number_unsigned() ? value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                                 : value_->is_number_integer();
  if (!fits) return Fail("is " + Shown() + ", but must be a whole number of 63 bits");
  const auto number = value_->get<int64_t>();
  if (number < min || number > max)
    return Fail("is " + std::to_string(number) + ", but must be from " + std::to_string(min) + " to " +
                std::to_string(max));
  return number;
}

Result<uint64_t> JsonField::Unsigned(uint64_t max) const {
  // A document that was made by a program, and not parsed, may hold a positive number as a signed one.
  const bool is_one = value_->is_number_unsigned() || (value_->is_number_integer() && value_->get<int64_t>() >= 0);
  if (!is_one || value_->get<uint64_t>() > max)
    return Fail("is " + Shown() + ", but must be a whole number from 0 to " + std::to_string(max));
  return value_->get<uint64_t>();
}

Result<std::vector<int64_t>> JsonField::Integers(size_t count_max) const {
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> fields, List());
  if (fields.size() > count_max)
    return Fail("has " + std::to_string(fields.size()) + " entries, but may have " + std::to_string(count_max));
  std::vector<int64_t> numbers;
  numbers.reserve(fields.size());
  for (const JsonField& field : fields) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t number, field.Integer());
    numbers.push_back(number);
  }
  return numbers;
}

Result<double> JsonField::Real() const {
  if (!value_->is_number()) return Fail("is " + Shown() + ", but must be a number");
  return value_->get<double>();
}

Result<std::string> JsonField::Text() const {
  if (!value_->is_string()) return Fail("is " + Shown() + ", but must be a text");
  return value_->get<std::string>();
}

Result<std::vector<std::string>> JsonField::Texts() const {
  std::vector<std::string> texts;
  KINTSUGI_RETURN_IF_ERROR(ReadJson(*this, &texts));
  return texts;
}

Result<bool> JsonField::Bool() const {
  if (!value_->is_boolean()) return Fail("is " + Shown() + ", but must be true or false");
  return value_->get<bool>();
}

Status ReadJson(const JsonField& field, std::string* text) {
  KINTSUGI_ASSIGN_OR_RETURN(*text, field.Text());
  return Status::Ok();
}

Status ReadJson(const JsonField& field, double* number) {
  KINTSUGI_ASSIGN_OR_RETURN(*number, field.Real());
  return Status::Ok();
}

Status ReadJson(const JsonField& field, bool* flag) {
  KINTSUGI_ASSIGN_OR_RETURN(*flag, field.Bool());
  return Status::Ok();
}

}  // namespace kintsugi
