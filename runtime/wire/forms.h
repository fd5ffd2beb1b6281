// Forms: what a value looks like on the wire, and which values are in range. Most follow from the value's type; the rest
// stand beside their fields in the lists.
//
// A scalar's form says its protobuf type, what it is called in a refusal, the least and the greatest value, and how the
// value becomes a number; and, where that is not plain, what its name on the wire ends with (kUnit).
#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/wire/enums.h"
#include "runtime/wire/field.h"

namespace kintsugi::wire {

enum class Type : uint8_t { kUint64, kInt64, kUint32, kInt32, kBool, kFixed64, kDouble };

constexpr bool IsSigned(Type type) { return type == Type::kInt64 || type == Type::kInt32; }
constexpr bool IsFixed(Type type) { return type == Type::kFixed64 || type == Type::kDouble; }

// What a reader makes of a varint, as protobuf's own does: 32 bits of it, or whether it is zero.
constexpr uint64_t Narrow(Type type, uint64_t raw) {
  switch (type) {
    case Type::kUint32: return static_cast<uint32_t>(raw);
    case Type::kInt32: return static_cast<uint64_t>(int64_t{static_cast<int32_t>(raw)});
    case Type::kBool: return raw != 0;
    default: return raw;
  }
}

// ---- values as numbers of 64 bits, the signed ones in two's complement ---------------------------------------------

template <typename V>
struct AsNumber {
  static constexpr uint64_t Raw(V v) { return static_cast<uint64_t>(v); }
  static constexpr V Of(uint64_t raw) { return static_cast<V>(raw); }
};
template <>
struct AsNumber<double> {
  static constexpr uint64_t Raw(double v) { return std::bit_cast<uint64_t>(v); }
  static constexpr double Of(uint64_t raw) { return std::bit_cast<double>(raw); }
};
template <typename Tag, typename Rep>
struct AsNumber<StrongId<Tag, Rep>> {
  static constexpr uint64_t Raw(StrongId<Tag, Rep> v) { return static_cast<uint64_t>(v.value()); }
  static constexpr StrongId<Tag, Rep> Of(uint64_t raw) { return StrongId<Tag, Rep>(static_cast<Rep>(raw)); }
};
template <>
struct AsNumber<Duration> {
  static constexpr std::string_view kUnit = "_ns";
  static constexpr uint64_t Raw(Duration v) { return static_cast<uint64_t>(v.count()); }
  static constexpr Duration Of(uint64_t raw) { return Duration(static_cast<int64_t>(raw)); }
};
template <>
struct AsNumber<TimePoint> {
  static constexpr std::string_view kUnit = "_ns";
  static constexpr uint64_t Raw(TimePoint v) { return static_cast<uint64_t>(v.nanoseconds()); }
  static constexpr TimePoint Of(uint64_t raw) { return TimePoint(Duration(static_cast<int64_t>(raw))); }
};
// 0: none.
template <>
struct AsNumber<std::optional<TrainPhase>> {
  static constexpr uint64_t Raw(std::optional<TrainPhase> v) { return v ? static_cast<uint64_t>(*v) : 0; }
  static constexpr std::optional<TrainPhase> Of(uint64_t raw) { return TrainPhaseFromNumber(raw); }
};
// The rank + 1, so that 0 is nobody, which is -1.
struct RankPlusOneAsNumber {
  static constexpr std::string_view kUnit = "_plus_one";
  static constexpr uint64_t Raw(Rank v) { return static_cast<uint64_t>(int64_t{v.value()} + 1); }
  static constexpr Rank Of(uint64_t raw) { return Rank(static_cast<int32_t>(static_cast<int64_t>(raw) - 1)); }
};
struct InvertedAsNumber {
  static constexpr std::string_view kUnit = "_inverted";
  static constexpr uint64_t Raw(bool v) { return v ? 0 : 1; }
  static constexpr bool Of(uint64_t raw) { return raw == 0; }
};

// ---- scalars -------------------------------------------------------------------------------------------------------

template <typename V, Type kIs, FieldName kSays, int64_t kFrom, uint64_t kTo, typename Number = AsNumber<V>>
struct Scalar : Number {
  using Value = V;
  static constexpr Type kType = kIs;
  static constexpr std::string_view kWord = kSays;
  static constexpr uint64_t kLeast = static_cast<uint64_t>(kFrom), kMost = kTo;
  static constexpr bool InRange(uint64_t raw) {
    if (IsSigned(kType))
      return static_cast<int64_t>(raw) >= kFrom && static_cast<int64_t>(raw) <= static_cast<int64_t>(kMost);
    return raw >= kLeast && raw <= kMost;
  }
};

inline constexpr uint64_t kAnyUint64 = UINT64_MAX, kAnyInt64 = INT64_MAX, kAnyInt32 = INT32_MAX;
// The gate word has 60 bits for a step.
inline constexpr uint64_t kStepMax = core::GateWord::kStepMask;
// Longer than any run, or copy: what is added to an instant must not overflow.
inline constexpr uint64_t kYear = std::chrono::nanoseconds(std::chrono::hours(24 * 365)).count();

template <typename V>
struct FormOfType;
template <>
struct FormOfType<uint64_t> : Scalar<uint64_t, Type::kUint64, "number", 0, kAnyUint64> {};
template <>
struct FormOfType<int64_t> : Scalar<int64_t, Type::kInt64, "number", INT64_MIN, kAnyInt64> {};
template <>
struct FormOfType<int> : Scalar<int, Type::kInt32, "number", INT32_MIN, kAnyInt32> {};
template <>
struct FormOfType<uint32_t> : Scalar<uint32_t, Type::kUint32, "number", 0, UINT32_MAX> {};
template <>
struct FormOfType<uint16_t> : Scalar<uint16_t, Type::kUint32, "port", 0, UINT16_MAX> {};
template <>
struct FormOfType<bool> : Scalar<bool, Type::kBool, "flag", 0, 1> {};
template <>
struct FormOfType<double> : Scalar<double, Type::kDouble, "number", 0, kAnyUint64> {};
template <>
struct FormOfType<Rank> : Scalar<Rank, Type::kInt32, "rank", 0, kAnyInt32> {};
template <>
struct FormOfType<Step> : Scalar<Step, Type::kUint64, "step", 0, kStepMax> {};
template <>
struct FormOfType<Generation> : Scalar<Generation, Type::kUint64, "generation", 0, kAnyUint64> {};
template <>
struct FormOfType<Incarnation> : Scalar<Incarnation, Type::kUint64, "incarnation", 0, kAnyUint64> {};
template <>
struct FormOfType<Duration> : Scalar<Duration, Type::kInt64, "age", 0, kAnyInt64> {};
template <>
struct FormOfType<TimePoint> : Scalar<TimePoint, Type::kInt64, "instant", 0, kAnyInt64> {};
template <>
struct FormOfType<std::optional<TrainPhase>>
    : Scalar<std::optional<TrainPhase>, Type::kUint32, EnumOf<TrainPhase>::kWord, 0,
             static_cast<uint64_t>(EnumOf<TrainPhase>::kLast)> {};
template <typename E>
requires std::is_enum_v<E>
struct FormOfType<E>
    : Scalar<E, Type::kUint32, EnumOf<E>::kWord, 0, static_cast<uint64_t>(EnumOf<E>::kLast)> {};

// Beside their fields in the lists.
using PlainStep = Scalar<uint64_t, Type::kUint64, "step", 0, kStepMax>;
using Limit = Scalar<Duration, Type::kInt64, "limit", 0, kYear>;
using Cost = Scalar<Duration, Type::kInt64, "cost", 0, kYear>;
using AnyDuration = Scalar<Duration, Type::kInt64, "duration", INT64_MIN, kAnyInt64>;
using RankOrNone = Scalar<Rank, Type::kInt32, "rank", -1, kAnyInt32>;
using RankPlusOne = Scalar<Rank, Type::kInt64, "rank", 0, kAnyInt32, RankPlusOneAsNumber>;
using Inverted = Scalar<bool, Type::kBool, "flag", 0, 1, InvertedAsNumber>;
using Fixed = Scalar<uint64_t, Type::kFixed64, "number", 0, kAnyUint64>;
using NotNegative = Scalar<int, Type::kInt32, "node", 0, kAnyInt32>;
using Positive = Scalar<int, Type::kInt32, "node", 1, kAnyInt32>;

// ---- everything else -----------------------------------------------------------------------------------------------

// Any bytes: what comes from exceptions and file systems may be no UTF-8.
struct Bytes {};
// A message of the fields that its type lists. It is always written, also where all in it is zero.
struct Message {};
// Packed where the elements are numbers.
template <typename E>
struct Repeated {
  using Element = E;
};
// One entry for each key, as protobuf's map.
template <typename K, typename V>
struct Map {
  using Key = K;
  using Mapped = V;
};

template <>
struct FormOfType<std::string> : Bytes {};
template <>
struct FormOfType<std::vector<uint8_t>> : Bytes {};
template <Listed T>
struct FormOfType<T> : Message {};
template <typename T>
struct FormOfType<std::vector<T>> : Repeated<FormOfType<T>> {};
template <typename K, typename V>
struct FormOfType<std::map<K, V>> : Map<FormOfType<K>, FormOfType<V>> {};

// A map of messages, in which the key is the field 1 of each, under this name.
template <FieldName kKeyName>
struct Rows {
  static constexpr std::string_view kKey = kKeyName;
};
// Its fields stand among those of the message around it, under their own numbers.
struct Inline {};
// An optional struct: a flag under the field's number, and its fields among those around it.
struct Flagged {};
// An optional scalar: a flag under the field's number, the value under this one.
template <uint32_t kValueNumber>
struct FlaggedAt {};
// An optional scalar that is written where it is there, also if it is zero.
struct Present {};

template <typename F>
concept IsScalar = requires { F::kType; };
template <typename F>
concept IsBytes = std::is_base_of_v<Bytes, F>;
template <typename F>
concept IsMessage = std::is_base_of_v<Message, F>;
template <typename F>
concept IsRepeated = requires { typename F::Element; };
template <typename F>
concept IsMap = requires { typename F::Mapped; };
template <typename F>
concept IsRows = requires { F::kKey; };

// A field's form: what stands beside it, else what its type says.
template <typename F>
using FormOf = std::conditional_t<
    std::is_same_v<typename F::Form, OfItsType> || std::is_same_v<typename F::Form, SaidIfAny>,
    FormOfType<typename F::Value>, typename F::Form>;

// ---- what is not plain data, and what no field says alone ----------------------------------------------------------

// For a type whose parts cannot be listed: Parts (which are), PartsOf(value), and Make(parts) with a reason to refuse.
template <typename T>
struct Made;
template <typename T>
concept IsMade = requires { typename Made<T>::Parts; };
template <IsMade T>
struct FormOfType<T> : Message {};

// What must hold between the fields of a message; specialized beside its list.
template <typename T>
struct Whole {
  static Status Check(const T&) { return Status::Ok(); }
};

inline Status OutOfRange(std::string_view what, const std::string& value) {
  return {StatusCode::kInvalidArgument, std::string(what) + " " + value + " is out of its range"};
}

}  // namespace kintsugi::wire
