// Random values of whatever the lists name: each field as its form allows, small numbers and great ones alike.
#pragma once

#include <random>

#include "runtime/wire/leaves.h"

namespace kintsugi::wire {

class RandomValues {
 public:
  explicit RandomValues(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }
  bool Flip() { return Below(2) == 1; }
  // Any bytes, not only UTF-8.
  std::string Text() {
    std::string text(Below(12), '\0');
    for (char& c : text) c = static_cast<char>(Below(256));
    return text;
  }

  template <typename T>
  T Any() {
    T value{};
    do Fill<T>(&value);
    while (!Whole<T>::Check(value).ok());
    return value;
  }
  // The alternative of this index.
  template <typename Variant, size_t I = 0>
  Variant Alternative(size_t index) {
    if constexpr (I + 1 < std::variant_size_v<Variant>)
      if (index != I) return Alternative<Variant, I + 1>(index);
    return Variant(std::in_place_index<I>, Any<std::variant_alternative_t<I, Variant>>());
  }

 private:
  template <typename T>
  void Fill(T* value) {
    ForEachField<T>([&]<typename F>(F) { FillValue<FormOf<F>>(&F::Of(*value)); });
  }

  template <typename Form, typename V>
  void FillValue(V* value) {
    if constexpr (IsScalar<Form>) {
      *value = Form::Of(Number<Form>());
    } else if constexpr (IsBytes<Form>) {
      const std::string text = Text();
      value->assign(text.begin(), text.end());
    } else if constexpr (IsMade<V>) {
      auto made = Made<V>::Make(Any<typename Made<V>::Parts>());
      while (!made.ok()) made = Made<V>::Make(Any<typename Made<V>::Parts>());
      *value = *made;
    } else if constexpr (Listed<V>) {
      Fill(value);
    } else if constexpr (IsMap<Form> || IsRows<Form>) {
      value->clear();
      for (uint64_t i = Below(4); i > 0; --i) {
        typename V::key_type key{};
        FillValue<FormOfType<typename V::key_type>>(&key);
        FillValue<FormOfType<typename V::mapped_type>>(&(*value)[key]);
      }
    } else if constexpr (IsRepeated<Form>) {
      value->assign(Below(4), typename V::value_type{});
      for (auto& one : *value) FillValue<typename Form::Element>(&one);
    } else {
      value->reset();
      if (Flip()) FillValue<FormOfType<typename V::value_type>>(&value->emplace());
    }
  }

  template <typename Form>
  uint64_t Number() {
    const uint64_t bits = random_();
    const uint64_t shift = Below(64);
    const uint64_t any =
        Narrow(Form::kType, IsSigned(Form::kType) ? static_cast<uint64_t>(static_cast<int64_t>(bits) >> shift)
                                                  : bits >> (Form::kType == Type::kDouble ? 0 : shift));
    if (Form::InRange(any)) return any;
    return Form::kLeast + any % (Form::kMost - Form::kLeast + 1);
  }

  std::mt19937_64 random_;
};

}  // namespace kintsugi::wire
