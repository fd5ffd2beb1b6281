// Fields as words: `step=7 valid=no ranks=[0,2] place=(step=3 phase=forward)`. A field that has its default is left out,
// but for those that say whom and what a line is about.
//
// For people, for comparison, and for what is read back (policies and events). Lists are [..], structs (..), texts bare
// or in quotes with \xNN escapes, durations and instants in milliseconds (`limit=20ms`; instants count from `origin`).
// What is written is read back equal.
// Errors: kInvalidArgument names the field and what stands there.
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/wire/forms.h"

namespace kintsugi::wire {

// Bare where it can be, else in quotes.
std::string WriteString(std::string_view value);
Result<std::string> ReadString(std::string_view text);

// ---- pieces of text ------------------------------------------------------------------------------------------------

// Splits at `separator` outside of quotes and brackets; empty pieces are dropped. Nothing: a quote or bracket is open.
std::optional<std::vector<std::string_view>> Split(std::string_view text, char separator);
// What is between the brackets.
std::optional<std::string_view> Inside(std::string_view text, char open, char close);

// ---- writing -------------------------------------------------------------------------------------------------------

struct WordWriter {
  TimePoint origin;

  std::string Value(bool v) const { return v ? "yes" : "no"; }
  std::string Value(uint64_t v) const { return std::to_string(v); }
  std::string Value(int64_t v) const { return std::to_string(v); }
  std::string Value(int v) const { return std::to_string(v); }
  std::string Value(uint32_t v) const { return std::to_string(v); }
  std::string Value(uint16_t v) const { return std::to_string(v); }
  std::string Value(double v) const;
  std::string Value(Duration v) const;
  // An instant that was never set is "none".
  std::string Value(TimePoint v) const { return v == TimePoint() ? "none" : Value(v - origin); }
  std::string Value(const std::string& v) const { return WriteString(v); }
  std::string Value(const std::vector<uint8_t>& v) const { return WriteString(std::string(v.begin(), v.end())); }
  template <typename Tag, typename Rep>
  std::string Value(StrongId<Tag, Rep> v) const {
    return v.ToString();
  }
  template <typename T>
  std::string Value(const std::optional<T>& v) const {
    return v ? Value(*v) : "none";
  }
  template <typename T>
  std::string Value(const std::vector<T>& v) const {
    std::string text;
    for (const T& one : v) text += (text.empty() ? "" : ",") + Value(one);
    return "[" + text + "]";
  }
  template <typename K, typename V>
  std::string Value(const std::map<K, V>& v) const {
    std::string text;
    for (const auto& [key, value] : v) text += (text.empty() ? "" : ",") + Value(key) + ":" + Value(value);
    return "[" + text + "]";
  }
  template <typename T>
  std::string Value(const T& v) const {
    if constexpr (std::is_same_v<T, core::Refusal>) {
      return std::to_string(static_cast<int>(v));  // its words are in the text beside it
    } else if constexpr (std::is_enum_v<T>) {
      return std::string(EnumOf<T>::NameOf(v));
    } else if constexpr (IsMade<T>) {
      return "(" + Struct(Made<T>::PartsOf(v)) + ")";
    } else {
      return "(" + Struct(v) + ")";
    }
  }
  // The fields that differ from their defaults, and those without which a line says nothing, blanks between.
  template <typename T>
  std::string Struct(const T& v) const;
  // Its word in the list, and its fields: `parked state=committed step=7`.
  template <typename T>
  std::string Sentence(const T& v) const {
    const std::string fields = Struct(v);
    return std::string(FieldsOf<T>::kWord) + (fields.empty() ? "" : " ") + fields;
  }
  template <typename... T>
  std::string Sentence(const std::variant<T...>& v) const {
    return std::visit([this](const auto& one) { return Sentence(one); }, v);
  }
};

// Whether the field is written with its default too.
bool IsAlwaysSaid(std::string_view name);
template <typename T>
std::string WordWriter::Struct(const T& v) const {
  const T none{};
  std::string text;
  ForEachField<T>([&]<typename F>(F) {
    const std::string value = Value(F::Of(v));
    if (value != Value(F::Of(none)) || IsAlwaysSaid(F::kName))
      text += (text.empty() ? "" : " ") + std::string(F::kName) + "=" + value;
  });
  return text;
}

// ---- reading -------------------------------------------------------------------------------------------------------

struct WordReader {
  TimePoint origin;

  bool Value(std::string_view text, bool* out) const;
  bool Value(std::string_view text, uint64_t* out) const { return Number(text, out); }
  bool Value(std::string_view text, int64_t* out) const { return Number(text, out); }
  bool Value(std::string_view text, int* out) const { return Number(text, out); }
  bool Value(std::string_view text, uint32_t* out) const { return Number(text, out); }
  bool Value(std::string_view text, uint16_t* out) const { return Number(text, out); }
  bool Value(std::string_view text, double* out) const;
  bool Value(std::string_view text, Duration* out) const;
  bool Value(std::string_view text, TimePoint* out) const;
  bool Value(std::string_view text, std::string* out) const;
  bool Value(std::string_view text, std::vector<uint8_t>* out) const;
  template <typename Tag, typename Rep>
  bool Value(std::string_view text, StrongId<Tag, Rep>* out) const {
    Rep value{};
    const bool read = Number(text, &value);
    *out = StrongId<Tag, Rep>(value);
    return read;
  }
  template <typename T>
  bool Value(std::string_view text, std::optional<T>* out) const {
    out->reset();
    return text == "none" || Value(text, &out->emplace());
  }
  template <typename T>
  bool Value(std::string_view text, std::vector<T>* out) const {
    const auto inside = Inside(text, '[', ']');
    const auto pieces = inside ? Split(*inside, ',') : std::nullopt;
    if (!pieces) return false;
    out->assign(pieces->size(), T{});
    for (size_t i = 0; i < pieces->size(); ++i)
      if (!Value((*pieces)[i], &(*out)[i])) return false;
    return true;
  }
  template <typename K, typename V>
  bool Value(std::string_view text, std::map<K, V>* out) const {
    const auto inside = Inside(text, '[', ']');
    const auto pieces = inside ? Split(*inside, ',') : std::nullopt;
    if (!pieces) return false;
    out->clear();
    for (std::string_view piece : *pieces) {
      const size_t colon = piece.find(':');
      K key{};
      if (colon == piece.npos || !Value(piece.substr(0, colon), &key) || !Value(piece.substr(colon + 1), &(*out)[key]))
        return false;
    }
    return true;
  }
  template <typename T>
  bool Value(std::string_view text, T* out) const {
    if constexpr (std::is_same_v<T, core::Refusal>) {
      uint32_t number = 0;
      const bool read = Number(text, &number) && number <= static_cast<uint32_t>(core::Refusal::kGoesBack);
      if (read) *out = static_cast<T>(number);
      return read;
    } else if constexpr (std::is_enum_v<T>) {
      const auto found = FromName<T>(text);
      if (found) *out = *found;
      return found.has_value();
    } else {
      const auto inside = Inside(text, '(', ')');
      return inside && Struct(*inside, out).ok();
    }
  }
  // "a=1 b=2": fields that are not named keep their defaults; a name that is none of T's is an error.
  template <typename T>
  Status Struct(std::string_view text, T* out) const;

 private:
  template <typename N>
  static bool Number(std::string_view text, N* out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
    return error == std::errc() && end == text.data() + text.size();
  }
};

// The fields that a text gives, each with what stands after its name.
Result<std::map<std::string_view, std::string_view>> FieldsIn(std::string_view text);

template <typename T>
Status WordReader::Struct(std::string_view text, T* out) const {
  KINTSUGI_ASSIGN_OR_RETURN(auto given, FieldsIn(text));
  Status status;
  ForEachField<T>([&]<typename F>(F) {
    const auto found = given.find(F::kName);
    if (found == given.end()) return;
    if (!Value(found->second, &F::Of(*out)) && status.ok())
      status = {StatusCode::kInvalidArgument,
                "field " + std::string(F::kName) + ": '" + std::string(found->second) + "' is no value of it"};
    given.erase(found);
  });
  KINTSUGI_RETURN_IF_ERROR(status);
  if (given.empty()) return Status::Ok();
  return {StatusCode::kInvalidArgument, "there is no field '" + std::string(given.begin()->first) + "'"};
}

}  // namespace kintsugi::wire
