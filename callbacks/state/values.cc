#include "callbacks/state/values.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "callbacks/state/key.h"

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

// Takes the one flat object of values from a parser that goes no deeper than that.
class ValuesReader : public nlohmann::json_sax<Json> {
 public:
  explicit ValuesReader(Values* values) : values_(values) {}
  const std::string& wrong() const { return wrong_; }

  bool null() override { return Take(std::monostate()); }
  bool boolean(bool value) override { return Take(value); }
  bool number_integer(number_integer_t value) override { return Take(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return Stop("value '" + PrintableKey(name_) + "' is a whole number beyond 63 bits");
    return Take(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Take(value); }
  bool string(string_t& text) override {
    if (depth_ < 2) return Take(text);
    for (const Special& special : kSpecials)
      if (is_float_ && special.text == text) return Add(special.value);
    return StopWithin();
  }
  bool binary(binary_t&) override { return Stop("binary data in JSON"); }
  bool start_object(std::size_t) override {
    return ++depth_ <= 2 || Stop("value '" + PrintableKey(name_) + "' is nested");
  }
  bool key(string_t& text) override {
    if (depth_ == 1)
      name_ = text;
    else
      is_float_ = text == kFloatField;
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !values_->Find(name_)) return StopWithin();
    return true;
  }
  bool start_array(std::size_t) override { return Stop("a list where a value belongs"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t at, const std::string&, const Json::exception&) override {
    return Stop("no JSON object from byte " + std::to_string(kMark.size() + at) + " on");
  }

 private:
  bool Stop(const std::string& what) {
    wrong_ = what;
    return false;
  }
  bool StopWithin() {
    return Stop("value '" + PrintableKey(name_) +
                "' is an object other than {\"float\": \"inf\", \"-inf\" or \"nan\"}");
  }
  bool Take(Value value) { return depth_ < 2 ? Add(std::move(value)) : StopWithin(); }
  bool Add(Value value) {
    if (depth_ < 1) return Stop("a value without a name");
    if (values_->Find(name_)) return Stop("value '" + PrintableKey(name_) + "' is there twice");
    const Status set = values_->Set(name_, std::move(value));
    return set.ok() || Stop(set.message());
  }

  Values* const values_;
  std::string name_, wrong_;
  bool is_float_ = false;
  int depth_ = 0;
};

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
  const auto bad = [](const std::string& what) { return Status(StatusCode::kDataLoss, "values: " + what); };
  if (!AreIn(bytes)) return bad("the bytes do not begin with 'kintsugi.values 1'");
  Values values;
  ValuesReader reader(&values);
  const std::string_view text = bytes.substr(kMark.size());
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) return bad(reader.wrong());
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
