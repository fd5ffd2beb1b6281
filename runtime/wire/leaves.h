// Leaves: a message's fields as they lie on the wire, made of its list at compile time. What stands inline (a struct's
// fields among those around it, the flag of an optional) is a leaf of its own here; leaves go by their numbers.
//
// Invariants: two fields of one number do not compile, nor does a number that protobuf keeps for itself.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/wire/forms.h"

namespace kintsugi::wire {

// A leaf is where a value is (Find: null where an optional is empty; Make: there from now on) and what it looks like.
// `kFlag`: it is the flag of the optional that Find gives. `kAlways`: where it is there it is written, also if it is zero.

template <typename F>
struct PlainLeaf {
  using Value = typename F::Value;
  using Form = FormOf<F>;
  static constexpr std::string_view kName = F::kName;
  static constexpr uint32_t kNumber = F::kNumber;
  static constexpr bool kFlag = false, kAlways = false;
  static std::string NameOnWire() { return std::string(F::kName); }
  template <typename S>
  static const Value* Find(const S& s) {
    return &F::Of(s);
  }
  template <typename S>
  static Value* Make(S* s) {
    return &F::Of(*s);
  }
};

template <typename F>
struct FlagLeaf : PlainLeaf<F> {
  using Form = FormOfType<bool>;
  static constexpr bool kFlag = true;
  static std::string NameOnWire() { return "has_" + std::string(F::kName); }
};

// The leaf Inner of the struct, or of the optional struct, that the field F is.
template <typename F, typename Inner>
struct InnerLeaf : Inner {
  static std::string NameOnWire() { return std::string(F::kName) + "_" + Inner::NameOnWire(); }
  template <typename S>
  static const typename Inner::Value* Find(const S& s) {
    return Inner::Find(F::Of(s));
  }
  template <typename S>
  static typename Inner::Value* Make(S* s) {
    return Inner::Make(&F::Of(*s));
  }
};
template <typename F, typename Inner>
struct OptionalLeaf : Inner {
  static std::string NameOnWire() { return std::string(F::kName) + "_" + Inner::NameOnWire(); }
  template <typename S>
  static const typename Inner::Value* Find(const S& s) {
    return F::Of(s) ? Inner::Find(*F::Of(s)) : nullptr;
  }
  template <typename S>
  static typename Inner::Value* Make(S* s) {
    if (!F::Of(*s)) F::Of(*s).emplace();
    return Inner::Make(&*F::Of(*s));
  }
};
template <typename F, uint32_t kNo, bool kIsAlways>
struct OptionalValueLeaf {
  using Value = typename F::Value::value_type;
  using Form = FormOfType<Value>;
  static constexpr std::string_view kName = F::kName;
  static constexpr uint32_t kNumber = kNo;
  static constexpr bool kFlag = false, kAlways = kIsAlways;
  static std::string NameOnWire() { return std::string(F::kName); }
  template <typename S>
  static const Value* Find(const S& s) {
    return F::Of(s) ? &*F::Of(s) : nullptr;
  }
  template <typename S>
  static Value* Make(S* s) {
    if (!F::Of(*s)) F::Of(*s).emplace();
    return &*F::Of(*s);
  }
};

template <typename T>
struct UnsortedLeaves;

template <typename F, typename Form = typename F::Form>
struct LeavesOfField {
  using List = std::tuple<PlainLeaf<F>>;
};
template <typename F>
struct LeavesOfField<F, Inline> {
  template <typename... L>
  static std::tuple<InnerLeaf<F, L>...> Inner(std::tuple<L...>*);
  using List = decltype(Inner(static_cast<typename UnsortedLeaves<typename F::Value>::List*>(nullptr)));
};
template <typename F>
struct LeavesOfField<F, Flagged> {
  template <typename... L>
  static std::tuple<FlagLeaf<F>, OptionalLeaf<F, L>...> Inner(std::tuple<L...>*);
  using List = decltype(Inner(static_cast<typename UnsortedLeaves<typename F::Value::value_type>::List*>(nullptr)));
};
template <typename F, uint32_t kNo>
struct LeavesOfField<F, FlaggedAt<kNo>> {
  using List = std::tuple<FlagLeaf<F>, OptionalValueLeaf<F, kNo, false>>;
};
template <typename F>
struct LeavesOfField<F, Present> {
  using List = std::tuple<OptionalValueLeaf<F, F::kNumber, true>>;
};

template <typename T>
struct UnsortedLeaves {
  template <typename... F>
  static decltype(std::tuple_cat(std::declval<typename LeavesOfField<F>::List>()...)) Joined(std::tuple<F...>*);
  using List = decltype(Joined(static_cast<typename FieldsOf<T>::Fields*>(nullptr)));
};

template <typename T>
class Leaves {
  using Unsorted = typename UnsortedLeaves<T>::List;
  static constexpr size_t kCount = std::tuple_size_v<Unsorted>;

  static constexpr std::array<uint32_t, kCount> Numbers() {
    return []<typename... L>(std::tuple<L...>*) {
      return std::array<uint32_t, kCount>{L::kNumber...};
    }(static_cast<Unsorted*>(nullptr));
  }
  static constexpr std::array<size_t, kCount> Order() {
    const auto numbers = Numbers();
    std::array<size_t, kCount> order{};
    for (size_t i = 0; i < kCount; ++i) {
      size_t before = 0;
      for (size_t j = 0; j < kCount; ++j) before += numbers[j] < numbers[i];
      order[before] = i;
    }
    return order;
  }
  static constexpr bool AreGood() {
    const auto numbers = Numbers();
    for (size_t i = 0; i < kCount; ++i) {
      if (numbers[i] == 0 || numbers[i] >= 19000) return false;
      for (size_t j = 0; j < i; ++j)
        if (numbers[i] == numbers[j]) return false;
    }
    return true;
  }
  static_assert(AreGood(), "a number is missing, there twice, or beyond those that are ours");

 public:
  static constexpr size_t kSize = kCount;
  // visit(leaf) for each, by their numbers.
  template <typename Visit>
  static constexpr void ForEach(Visit&& visit) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      (visit(std::tuple_element_t<Order()[I], Unsorted>{}), ...);
    }(std::make_index_sequence<kCount>());
  }
  // The same until one says true.
  template <typename Visit>
  static constexpr bool Any(Visit&& visit) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return (visit(std::tuple_element_t<Order()[I], Unsorted>{}) || ...);
    }(std::make_index_sequence<kCount>());
  }
};

}  // namespace kintsugi::wire
