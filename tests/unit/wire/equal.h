// Equality of whatever the lists name, field by field, every bit of a floating-point number.
#pragma once

#include <bit>

#include "runtime/wire/codec.h"
#include "runtime/wire/node_codec.h"
#include "runtime/wire/node_fields.h"

namespace kintsugi::wire {

KINTSUGI_FIELDS(AgentFrame, (header), (message))
KINTSUGI_FIELDS(ControllerFrame, (header), (message))
KINTSUGI_FIELDS(NodeFrame, (term), (message))
KINTSUGI_FIELDS(NodeOrderFrame, (term), (order))

template <typename T>
bool Equal(const T& a, const T& b);

inline bool EqualValue(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
template <typename T>
bool EqualValue(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b ? Equal(*a, *b) : a.has_value() == b.has_value();
}
template <typename T>
bool EqualValue(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) { return Equal(x, y); });
}
template <typename K, typename V>
bool EqualValue(const std::map<K, V>& a, const std::map<K, V>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && Equal(x.second, y.second); });
}
template <typename... T>
bool EqualValue(const std::variant<T...>& a, const std::variant<T...>& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&]<typename M>(const M& m) { return Equal(m, std::get<M>(b)); }, a);
}
template <typename T>
bool EqualValue(const T& a, const T& b) {
  return a == b;
}

template <typename T>
bool Equal(const T& a, const T& b) {
  if constexpr (Listed<T>) {
    bool equal = true;
    ForEachField<T>([&]<typename F>(F) { equal = equal && Equal(F::Of(a), F::Of(b)); });
    return equal;
  } else if constexpr (IsMade<T>) {
    return Equal(Made<T>::PartsOf(a), Made<T>::PartsOf(b));
  } else {
    return EqualValue(a, b);
  }
}

}  // namespace kintsugi::wire
