#include "runtime/core/empty_places.h"

#include <algorithm>

namespace kintsugi::core {
namespace {

constexpr int kInVainMax = 3;

}  // namespace

void EmptyPlaces::TellAway(const std::vector<Rank>& ranks) {
  away_ = {ranks.begin(), ranks.end()};
  for (Rank rank : ranks) lost_.erase(rank), in_vain_.erase(rank);
}

void EmptyPlaces::OnFilled(Rank rank) {
  away_.erase(rank);
  lost_.erase(rank);
  in_vain_.erase(rank);
}

void EmptyPlaces::OnInVain(const std::vector<Rank>& ranks, TimePoint now) {
  int most = 0;
  for (Rank rank : ranks) most = std::max(most, ++in_vain_[rank]);
  next_ = now + pause_ * (1 << std::min(most, kInVainMax));
}

bool EmptyPlaces::MayBeFilled(Rank rank) const {
  const auto in_vain = in_vain_.find(rank);
  return IsHere(rank) && !lost_.count(rank) && (in_vain == in_vain_.end() || in_vain->second < kInVainMax);
}

}  // namespace kintsugi::core
