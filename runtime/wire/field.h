// Field: how a list of fields is spelled, and how it is walked.
//
// A list names every field of a struct once, and beside it the field's number on the wire and, where its type does not
// say it already, its form there: what it looks like and which values are in range (forms.h). Bytes, words, digests,
// equality and random values for tests are archives: they walk the list, and none of them names a field.
//
//   KINTSUGI_FIELDS(core::GroupClaim, (ranks, 2), (replicas, 3))                 part of messages
//   KINTSUGI_MESSAGE(12, "beat", core::Beat, (count, 1), (place, 0, Inline))     says something by itself: under this
//                                                                               number in its envelope, with this word
//   KINTSUGI_BARE(17, "agent_closed", AgentChannelClosed, (channel, 17))        the same: its one field stands there
//   KINTSUGI_SIGN(7, "tick", core::Tick)                                        the same: nothing in it, a `true`
//   KINTSUGI_FIELDS(core::StepDecided, (step))                                   is on no wire: names alone
//
// Lists stand in the namespace kintsugi::wire.
// Invariants: a list that lacks a field, names one twice or names one that is none does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

namespace kintsugi::wire {

// A text as an argument of a template.
template <size_t N>
struct FieldName {
  char text[N]{};
  consteval FieldName(const char (&from)[N]) {  // NOLINT: a literal is one
    for (size_t i = 0; i < N; ++i) text[i] = from[i];
  }
  constexpr operator std::string_view() const { return {text, N - 1}; }  // NOLINT
};

// As the field's type says (forms.h).
struct OfItsType {};
// The same. In digests it says nothing where it has its default: it came when there were digests without it.
struct SaidIfAny {};

template <FieldName kText, auto kMember, uint32_t kNo = 0, typename FormT = OfItsType>
struct Field;
template <FieldName kText, typename S, typename V, V S::*kMember, uint32_t kNo, typename FormT>
struct Field<kText, kMember, kNo, FormT> {
  using Value = V;
  using Form = FormT;
  static constexpr std::string_view kName = kText;
  static constexpr uint32_t kNumber = kNo;
  static const V& Of(const S& s) { return s.*kMember; }
  static V& Of(S& s) { return s.*kMember; }
};

// How an alternative stands in its envelope.
enum class Stands : uint8_t {
  kNever,    // a part, or on no wire
  kMessage,  // as a message of its fields
  kBare,     // as its one field
  kSign,     // as `true`
};

// What the macros below make of a list: `Fields`, a tuple; kName, kWord, kNumber, kStands.
template <typename T>
struct FieldsOf;

template <typename T>
concept Listed = requires { typename FieldsOf<T>::Fields; };

// visit(field) for each, in the list's order.
template <typename T, typename Visit>
constexpr void ForEachField(Visit&& visit) {
  [&]<typename... F>(std::tuple<F...>*) { (visit(F{}), ...); }(static_cast<typename FieldsOf<T>::Fields*>(nullptr));
}

}  // namespace kintsugi::wire

// The preprocessor's way to do something with each of a list.
#define KINTSUGI_PARENS ()
#define KINTSUGI_EXPAND(...) KINTSUGI_EXPAND_1(KINTSUGI_EXPAND_1(KINTSUGI_EXPAND_1(KINTSUGI_EXPAND_1(__VA_ARGS__))))
#define KINTSUGI_EXPAND_1(...) KINTSUGI_EXPAND_2(KINTSUGI_EXPAND_2(KINTSUGI_EXPAND_2(KINTSUGI_EXPAND_2(__VA_ARGS__))))
#define KINTSUGI_EXPAND_2(...) KINTSUGI_EXPAND_3(KINTSUGI_EXPAND_3(KINTSUGI_EXPAND_3(KINTSUGI_EXPAND_3(__VA_ARGS__))))
#define KINTSUGI_EXPAND_3(...) __VA_ARGS__
#define KINTSUGI_EACH(of, ...) __VA_OPT__(KINTSUGI_EXPAND(KINTSUGI_EACH_1(of, __VA_ARGS__)))
#define KINTSUGI_EACH_1(of, one, ...) of one __VA_OPT__(, KINTSUGI_EACH_AGAIN KINTSUGI_PARENS(of, __VA_ARGS__))
#define KINTSUGI_EACH_AGAIN() KINTSUGI_EACH_1

#define KINTSUGI_FIELD_NAME(name, ...) name
#define KINTSUGI_FIELD(name, ...) Field<#name, &Self::name __VA_OPT__(, ) __VA_ARGS__>

// The bindings count the fields: as many as there are, each of another name, and each name a member's are all of them.
#define KINTSUGI_LISTED(stands, number, word, Type, ...)                                                             \
  template <>                                                                                                        \
  struct FieldsOf<Type> {                                                                                            \
    using Self = Type;                                                                                               \
    using Fields = std::tuple<KINTSUGI_EACH(KINTSUGI_FIELD, __VA_ARGS__)>;                                           \
    static constexpr std::string_view kName = #Type;                                                                 \
    static constexpr std::string_view kWord = word;                                                                  \
    static constexpr uint32_t kNumber = number;                                                                      \
    static constexpr Stands kStands = Stands::stands;                                                                \
    __VA_OPT__(static void NamesAll(const Self& s) {                                                                 \
      [[maybe_unused]] const auto& [KINTSUGI_EACH(KINTSUGI_FIELD_NAME, __VA_ARGS__)] = s;                            \
    })                                                                                                               \
    static_assert(std::tuple_size_v<Fields> > 0 || std::is_empty_v<Self>, "its list names no field");                \
  };

#define KINTSUGI_FIELDS(Type, ...) KINTSUGI_LISTED(kNever, 0, "", Type __VA_OPT__(, ) __VA_ARGS__)
#define KINTSUGI_MESSAGE(number, word, Type, ...) \
  KINTSUGI_LISTED(kMessage, number, word, Type __VA_OPT__(, ) __VA_ARGS__)
#define KINTSUGI_BARE(number, word, Type, field) KINTSUGI_LISTED(kBare, number, word, Type, field)
#define KINTSUGI_SIGN(number, word, Type) KINTSUGI_LISTED(kSign, number, word, Type)
