// How single values are written and read (text.h). Internal to this folder.
#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/journal/fields.h"
#include "runtime/journal/text.h"

namespace kintsugi::journal {

// ---- names of enums ------------------------------------------------------------------------------------------------

inline std::string_view NameOf(core::Phase value) { return core::PhaseName(value); }
inline std::string_view NameOf(core::FaultKind value) { return core::FaultKindName(value); }
inline std::string_view NameOf(core::Standing value) { return core::StandingName(value); }
inline std::string_view NameOf(core::TieRule value) { return core::TieRuleName(value); }
inline std::string_view NameOf(core::GateState value) { return core::GateStateName(value); }
inline std::string_view NameOf(Rung value) { return core::RungName(value); }
inline std::string_view NameOf(StatusCode value) { return StatusCodeName(value); }
inline std::string_view NameOf(TrainPhase value) { return TrainPhaseName(value); }
inline std::string_view NameOf(Activity value) { return ActivityName(value); }
inline std::string_view NameOf(DType value) { return DTypeName(value); }
inline std::string_view NameOf(ObjectKind value) { return value == ObjectKind::kDerived ? "derived" : "mirrored"; }

inline constexpr core::Phase LastOf(core::Phase) { return core::Phase::kEnded; }
inline constexpr core::FaultKind LastOf(core::FaultKind) { return core::FaultKind::kControllerLost; }
inline constexpr core::Standing LastOf(core::Standing) { return core::Standing::kRunning; }
inline constexpr core::TieRule LastOf(core::TieRule) { return core::TieRule::kWitness; }
inline constexpr core::GateState LastOf(core::GateState) { return core::GateState::kTorn; }
inline constexpr Rung LastOf(Rung) { return Rung::kExit; }
inline constexpr StatusCode LastOf(StatusCode) { return StatusCode::kInternal; }
inline constexpr TrainPhase LastOf(TrainPhase) { return kTrainPhases.back().phase; }
inline constexpr Activity LastOf(Activity) { return Activity::kWait; }
inline constexpr DType LastOf(DType) { return kDTypeLast; }
inline constexpr ObjectKind LastOf(ObjectKind) { return ObjectKind::kMirrored; }

template <typename E>
std::optional<E> FromName(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(LastOf(E{})); ++i)
    if (NameOf(static_cast<E>(i)) == name) return static_cast<E>(i);
  return std::nullopt;
}

// ---- pieces of text ------------------------------------------------------------------------------------------------

// Splits at `separator` outside of quotes and brackets; empty pieces are dropped. Nothing: a quote or bracket is open.
std::optional<std::vector<std::string_view>> Split(std::string_view text, char separator);
// What is between the brackets.
std::optional<std::string_view> Inside(std::string_view text, char open, char close);

// ---- writing -------------------------------------------------------------------------------------------------------

struct Writer {
  TimePoint origin;

  std::string Value(bool v) const { return v ? "yes" : "no"; }
  std::string Value(uint64_t v) const { return std::to_string(v); }
  std::string Value(int64_t v) const { return std::to_string(v); }
  std::string Value(int v) const { return std::to_string(v); }
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
      return std::string(NameOf(v));
    } else {
      return "(" + Struct(v) + ")";
    }
  }
  // The fields that differ from their defaults, and those without which a line says nothing, blanks between.
  template <typename T>
  std::string Struct(const T& v) const;
};

struct NamedValues {
  Writer writer;
  std::vector<std::pair<std::string, std::string>> list;
  template <typename... T>
  void All(std::string_view names, const T&... values) {
    (Add(&names, writer.Value(values)), ...);
  }
  void Add(std::string_view* names, std::string value);
};
// Whether the field is written with its default too.
bool IsAlwaysSaid(std::string_view name);
// Takes the first of "a, b, c" off.
std::string_view TakeName(std::string_view* names);

template <typename T>
std::string Writer::Struct(const T& v) const {
  NamedValues now{*this, {}}, none{*this, {}};
  Fields(now, v);
  Fields(none, static_cast<const T&>(T{}));
  std::string text;
  for (size_t i = 0; i < now.list.size(); ++i)
    if (now.list[i].second != none.list[i].second || IsAlwaysSaid(now.list[i].first))
      text += (text.empty() ? "" : " ") + now.list[i].first + "=" + now.list[i].second;
  return text;
}

// ---- reading -------------------------------------------------------------------------------------------------------

struct Reader {
  TimePoint origin;

  bool Value(std::string_view text, bool* out) const;
  bool Value(std::string_view text, uint64_t* out) const { return Number(text, out); }
  bool Value(std::string_view text, int64_t* out) const { return Number(text, out); }
  bool Value(std::string_view text, int* out) const { return Number(text, out); }
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
    if constexpr (std::is_enum_v<T>) {
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

struct Assigner {
  Reader reader;
  std::map<std::string_view, std::string_view> given;
  Status status;
  template <typename... T>
  void All(std::string_view names, T&... values) {
    (Take(&names, &values), ...);
  }
  template <typename T>
  void Take(std::string_view* names, T* value) {
    const auto found = given.find(TakeName(names));
    if (found == given.end()) return;
    if (!reader.Value(found->second, value) && status.ok())
      status = {StatusCode::kInvalidArgument,
                "field " + std::string(found->first) + ": '" + std::string(found->second) + "' is no value of it"};
    given.erase(found);
  }
};
Status FillGiven(std::string_view text, Assigner* assigner);

template <typename T>
Status Reader::Struct(std::string_view text, T* out) const {
  Assigner assigner{*this, {}, {}};
  KINTSUGI_RETURN_IF_ERROR(FillGiven(text, &assigner));
  Fields(assigner, *out);
  KINTSUGI_RETURN_IF_ERROR(assigner.status);
  if (assigner.given.empty()) return Status::Ok();
  return {StatusCode::kInvalidArgument, "there is no field '" + std::string(assigner.given.begin()->first) + "'"};
}

}  // namespace kintsugi::journal
