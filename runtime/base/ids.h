// Strong identifiers: a rank cannot be passed where a step is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace kintsugi {

template <typename Tag, typename Rep>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;
  constexpr StrongId Next() const { return StrongId(value_ + 1); }
  // REQUIRES: value() > 0 for unsigned representations.
  constexpr StrongId Previous() const { return StrongId(value_ - 1); }
  std::string ToString() const { return std::to_string(value_); }

 private:
  Rep value_{};
};

using Rank = StrongId<struct RankTag, int32_t>;
// Number of the last committed optimizer update; 0 is the registered initial state.
using Step = StrongId<struct StepTag, uint64_t>;
// Monotonic number of a membership and its communicators; messages of older ones are refused.
using Generation = StrongId<struct GenerationTag, uint64_t>;
// One life of a rank: counts its process starts, from 1.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;

// Who decides: ordered by number; two controllers never hold the same number.
struct Term {
  uint64_t number = 0;
  uint64_t controller_id = 0;
  auto operator<=>(const Term&) const = default;
};

}  // namespace kintsugi

template <typename Tag, typename Rep>
struct std::hash<kintsugi::StrongId<Tag, Rep>> {
  size_t operator()(const kintsugi::StrongId<Tag, Rep>& id) const noexcept { return std::hash<Rep>()(id.value()); }
};
