#include "replica/plan/holder_sets.h"

#include <algorithm>
#include <functional>

#include "runtime/base/check.h"

namespace kintsugi::plan {
namespace {

uint64_t HashOf(std::span<const int32_t> ranks) {
  uint64_t hash = 0x9E3779B97F4A7C15ull * (ranks.size() + 1);
  for (int32_t rank : ranks) {
    hash = (hash ^ static_cast<uint32_t>(rank)) * 0xBF58476D1CE4E5B9ull;
    hash ^= hash >> 29;
  }
  return hash;
}

bool IsSame(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

uint32_t HolderSets::Intern(std::span<const int32_t> ranks) {
  if (last_ + 1 < first_.size() && IsSame(Ranks(last_), ranks)) return last_;
  const uint64_t hash = HashOf(ranks);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (IsSame(Ranks(it->second), ranks)) return last_ = it->second;
  KINTSUGI_CHECK(
      !ranks.empty() && std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end(),
      "holders are ranks, ascending and distinct");
  last_ = static_cast<uint32_t>(first_.size() - 1);
  by_hash_.emplace(hash, last_);
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  if (!hosts_.empty()) {
    by_host_.insert(by_host_.end(), ranks.begin(), ranks.end());
    std::sort(by_host_.begin() + static_cast<std::ptrdiff_t>(first_.back()), by_host_.end(),
              [&](int32_t a, int32_t b) { return std::pair(Host(a), a) < std::pair(Host(b), b); });
  }
  first_.push_back(ranks_.size());
  return last_;
}

bool HolderSets::Has(uint32_t set, int32_t rank) const {
  const auto ranks = Ranks(set);
  return ranks.size() == 1 ? ranks[0] == rank : std::binary_search(ranks.begin(), ranks.end(), rank);
}

std::span<const int32_t> HolderSets::Candidates(uint32_t set, const int32_t& to) const {
  if (Has(set, to)) return {&to, 1};
  if (hosts_.empty()) return Ranks(set);
  struct ByHost {
    const HolderSets& sets;
    bool operator()(int32_t rank, int64_t host) const { return sets.Host(rank) < host; }
    bool operator()(int64_t host, int32_t rank) const { return host < sets.Host(rank); }
  };
  const auto ranks = Slice(by_host_, set);
  const auto [first, end] = std::equal_range(ranks.begin(), ranks.end(), Host(to), ByHost{*this});
  return first == end ? Ranks(set) : std::span<const int32_t>(first, end);
}

}  // namespace kintsugi::plan
