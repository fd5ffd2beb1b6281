#include "callbacks/state/values.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "callbacks/state/key.h"
#include "runtime/base/json.h"

namespace kintsugi {
namespace {

using Value = Values::Value;
using Json = nlohmann::json;

constexpr std::string_view kMark = "kintsugi.values 1\n";
constexpr std::string_view kFloatField = "float";

struct Special {
  std::string_view text;
  double value;
};
constexpr Special kSpecials[] = {{"inf", std::numeric_limits<double>::infinity()},
                                 {"-inf", -std::numeric_limits<double>::infinity()},
                                 {"nan", std::numeric_limits<double>::quiet_NaN()}};

Status Refuse(const std::string& name, const std::string& what) {
  return {StatusCode::kInvalidArgument, "value '" + PrintableKey(name) + "' " + what};
}

bool IsUtf8(const std::string& text) {
  const Json json = text;
  return Json::parse(json.dump(-1, ' ', false, Json::error_handler_t::ignore)) == json;
}

Json JsonOf(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const auto* real = std::get_if<double>(&value);
  if (!real) return nullptr;
  if (std::isfinite(*real)) return *real;
  const Special& special = std::isnan(*real) ? kSpecials[2] : kSpecials[*real > 0 ? 0 : 1];
  return {{std::string(kFloatField), special.text}};
}

Result<Value> ReadValue(const JsonField& field) {
  const std::string_view kind = field.Kind();
  if (kind == "null") return Value(std::monostate());
  if (kind == "boolean") return Value(*field.Bool());
  if (kind == "string") return Value(std::string(*field.Text()));
  if (kind == "number" && !field.IsWhole()) return Value(*field.Real());
  if (kind != "object") {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t number, field.Integer());
    return Value(number);
  }
  std::string_view text;
  if (field.CheckMembers({kFloatField}).ok() && field.Read(kFloatField, &text).ok())
    for (const Special& special : kSpecials)
      if (special.text == text) return Value(special.value);
  return field.Fail("is an object other than {\"float\": \"inf\", \"-inf\" or \"nan\"}");
}

}  // namespace

Status Values::Set(const std::string& name, Value value) {
  if (const Status valid = ValidateKey(name); !valid.ok()) return valid.Annotate("a value's name");
  if (name.front() == '.' || name.back() == '.' || name.find("..") != std::string::npos)
    return Refuse(name, "has an empty part in its name: parts are joined by one dot");
  if (const auto* text = std::get_if<std::string>(&value); text && !IsUtf8(*text))
    return Refuse(name, "is a text that is no UTF-8: register bytes as an object");
  const auto after = values_.lower_bound(name + ".");
  if (after != values_.end() && after->first.starts_with(name + "."))
    return Refuse(name, "would be a value and hold '" + PrintableKey(after->first) + "': rename one of them");
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    if (values_.count(name.substr(0, dot)))
      return Refuse(name, "would be within '" + PrintableKey(name.substr(0, dot)) + "', a value: rename one of them");
  values_[name] = std::move(value);
  return Status::Ok();
}

const Value* Values::Find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

std::string Values::Encode() const {
  Json json = Json::object();
  for (const auto& [name, value] : values_) json[name] = JsonOf(value);
  return std::string(kMark) + json.dump();
}

bool Values::AreIn(std::string_view bytes) { return bytes.starts_with(kMark); }

Result<Values> Values::Decode(std::string_view bytes) {
  if (!AreIn(bytes))
    return Status(StatusCode::kDataLoss, "values: the bytes do not begin with 'kintsugi.values 1'");
  KINTSUGI_ASSIGN_OR_RETURN(
      const JsonDocument document,
      JsonDocument::Parse(bytes.substr(kMark.size()), {.place = "values", .code = StatusCode::kDataLoss}));
  KINTSUGI_ASSIGN_OR_RETURN(const auto members, document.Root().Members());
  Values values;
  for (const auto& [name, field] : members) {
    KINTSUGI_ASSIGN_OR_RETURN(Value value, ReadValue(field));
    if (const Status set = values.Set(std::string(name), std::move(value)); !set.ok()) return field.Fail(set.message());
  }
  return values;
}

std::string DescribeValue(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return "'" + PrintableKey(*text) + "'";
  if (std::holds_alternative<std::monostate>(value)) return "none";
  if (const auto* real = std::get_if<double>(&value); real && !std::isfinite(*real))
    return std::isnan(*real) ? "nan" : *real > 0 ? "inf" : "-inf";
  return JsonOf(value).dump();
}

ShardedObject ObjectOf(std::string key, Values* values) {
  ShardedObject object;
  object.key = std::move(key);
  object.kind = ObjectKind::kMirrored;
  object.take_over = TakeOver::kRankZero;
  object.context = values;
  object.capture = [](void* context, std::vector<uint8_t>* out) {
    const std::string bytes = static_cast<const Values*>(context)->Encode();
    out->insert(out->end(), bytes.begin(), bytes.end());
  };
  object.restore = [](void* context, const uint8_t* bytes, uint64_t size_bytes) -> Status {
    KINTSUGI_ASSIGN_OR_RETURN(Values restored,
                              Values::Decode({reinterpret_cast<const char*>(bytes), static_cast<size_t>(size_bytes)}));
    *static_cast<Values*>(context) = std::move(restored);
    return Status::Ok();
  };
  return object;
}

}  // namespace kintsugi
