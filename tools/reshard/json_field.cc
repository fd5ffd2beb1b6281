#include "tools/reshard/json_field.h"

#include <algorithm>
#include <set>

namespace kintsugi::reshard {
namespace {

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

}  // namespace

Result<Json> ParseJson(std::string_view text) {
  std::string problem;
  std::vector<std::set<std::string>> members;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (!problem.empty()) return false;
    if (depth > kDepthMax) problem = "more than " + std::to_string(kDepthMax) + " levels";
    if (event == Json::parse_event_t::object_start) members.emplace_back();
    if (event == Json::parse_event_t::object_end && !members.empty()) members.pop_back();
    if (event == Json::parse_event_t::key && !members.empty() &&
        !members.back().insert(value.get_ref<const std::string&>()).second)
      problem = "the member '" + value.get_ref<const std::string&>() + "' is there twice";
    return problem.empty();
  };
  try {
    Json document = Json::parse(text.begin(), text.end(), watch);
    if (problem.empty()) return document;
  } catch (const Json::exception& exception) {
    if (problem.empty()) problem = Tell(exception.what());
  }
  return Status(StatusCode::kInvalidArgument, "not a JSON spec: " + problem);
}

std::string Field::Pointer() const {
  if (!parent_) return "the document";
  return (parent_->parent_ ? parent_->Pointer() : "") + "/" + (name_.empty() ? std::to_string(index_) : Escaped(name_));
}

Status Field::Fail(const std::string& what) const { return {StatusCode::kInvalidArgument, Pointer() + ": " + what}; }

std::string Field::Shown() const {
  if (value_->is_object()) return "an object";
  if (value_->is_array()) return "a list of " + std::to_string(value_->size());
  std::string text = value_->dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

Status Field::CheckMembers(std::initializer_list<std::string_view> names) const {
  if (!value_->is_object()) return Fail("is " + Shown() + ", but must be an object");
  for (const auto& [name, value] : value_->items())
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      std::string known;
      for (const std::string_view one : names) known += (known.empty() ? "" : ", ") + std::string(one);
      return Fail("has the unknown member '" + name.substr(0, kShownMax) + "'; known are " + known);
    }
  return Status::Ok();
}

std::optional<Field> Field::Find(const char* name) const {
  const auto found = value_->find(name);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return Field(*found, *this, name, 0);
}

Result<Field> Field::Get(const char* name) const {
  if (!value_->is_object()) return Fail("is " + Shown() + ", but must be an object");
  const auto found = Find(name);
  if (!found) return Fail(std::string("lacks the member '") + name + "'");
  return *found;
}

Result<std::vector<std::pair<std::string, Field>>> Field::Members() const {
  if (!value_->is_object()) return Fail("is " + Shown() + ", but must be an object");
  std::vector<std::pair<std::string, Field>> members;
  for (auto at = value_->begin(); at != value_->end(); ++at)
    members.emplace_back(at.key(), Field(at.value(), *this, at.key(), 0));
  return members;
}

Result<std::vector<Field>> Field::List() const {
  if (!value_->is_array()) return Fail("is " + Shown() + ", but must be a list");
  std::vector<Field> fields;
  fields.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) fields.push_back(Field((*value_)[i], *this, "", i));
  return fields;
}

Result<int64_t> Field::Integer(int64_t min, int64_t max) const {
  const bool fits = value_->is_number_unsigned() ? value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                                 : value_->is_number_integer();
  if (!fits) return Fail("is " + Shown() + ", but must be a whole number of 63 bits");
  const auto number = value_->get<int64_t>();
  if (number < min || number > max)
    return Fail("is " + std::to_string(number) + ", but must be from " + std::to_string(min) + " to " +
                std::to_string(max));
  return number;
}

Result<std::vector<int64_t>> Field::Integers(size_t count_max) const {
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<Field> fields, List());
  if (fields.size() > count_max)
    return Fail("has " + std::to_string(fields.size()) + " entries, but may have " + std::to_string(count_max));
  std::vector<int64_t> numbers;
  numbers.reserve(fields.size());
  for (const Field& field : fields) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t number, field.Integer());
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::string> Field::Text() const {
  if (!value_->is_string()) return Fail("is " + Shown() + ", but must be a text");
  return value_->get<std::string>();
}

Result<bool> Field::Bool() const {
  if (!value_->is_boolean()) return Fail("is " + Shown() + ", but must be true or false");
  return value_->get<bool>();
}

}  // namespace kintsugi::reshard
