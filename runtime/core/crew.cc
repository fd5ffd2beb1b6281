#include "runtime/core/crew.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

std::vector<Rank> AllOf(int seats) {
  std::vector<Rank> ranks;
  ranks.reserve(static_cast<size_t>(std::max(seats, 0)));
  for (int seat = 0; seat < seats; ++seat) ranks.emplace_back(seat);
  return ranks;
}

std::vector<Rank> Sorted(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  KINTSUGI_CHECK(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end(), "a rank is named twice");
  return ranks;
}

// Empty: they are a crew.
std::string WhyNone(int seats, const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "a crew of nobody";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].value() < 0 || ranks[i].value() >= seats)
      return "rank " + ranks[i].ToString() + " has no seat among " + std::to_string(seats);
    if (i > 0 && !(ranks[i - 1] < ranks[i]))
      return "rank " + ranks[i].ToString() + " stands behind rank " + ranks[i - 1].ToString() + " in a crew";
  }
  return "";
}

}  // namespace

Crew::Crew(int seats) : Crew(seats, AllOf(seats)) {}

Crew::Crew(int seats, std::vector<Rank> ranks) : seats_(seats), ranks_(std::move(ranks)) { CheckInvariants(); }

Result<Crew> Crew::Of(int seats, const std::vector<Rank>& ranks) {
  if (ranks.empty()) return Crew(seats);
  if (const std::string why = WhyNone(seats, ranks); !why.empty()) return Status(StatusCode::kInvalidArgument, why);
  return Crew(seats, ranks);
}

void Crew::CheckInvariants() const {
  const std::string why = WhyNone(seats_, ranks_);
  KINTSUGI_CHECK(why.empty(), why);
}

bool Crew::Has(Rank rank) const {
  if (whole()) return rank.value() >= 0 && rank.value() < seats_;
  return std::binary_search(ranks_.begin(), ranks_.end(), rank);
}

int Crew::NumberOf(Rank rank) const {
  KINTSUGI_CHECK(Has(rank), "rank " + rank.ToString() + " has no number: it takes no part");
  if (whole()) return rank.value();
  return static_cast<int>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

Rank Crew::At(int number) const {
  KINTSUGI_CHECK(number >= 0 && static_cast<size_t>(number) < ranks_.size(),
                 "nobody has number " + std::to_string(number) + " in a crew of " + std::to_string(ranks_.size()));
  return ranks_[static_cast<size_t>(number)];
}

Crew Crew::Without(const std::vector<Rank>& leaving) const {
  CheckInvariants();
  for (Rank rank : leaving) KINTSUGI_CHECK(Has(rank), "rank " + rank.ToString() + " leaves, and takes no part");
  const std::vector<Rank> sorted = Sorted(leaving);
  std::vector<Rank> staying;
  std::set_difference(ranks_.begin(), ranks_.end(), sorted.begin(), sorted.end(), std::back_inserter(staying));
  return Crew(seats_, std::move(staying));
}

Crew Crew::With(const std::vector<Rank>& coming) const {
  CheckInvariants();
  for (Rank rank : coming) KINTSUGI_CHECK(!Has(rank), "rank " + rank.ToString() + " comes, and takes part already");
  const std::vector<Rank> sorted = Sorted(coming);
  std::vector<Rank> all;
  std::merge(ranks_.begin(), ranks_.end(), sorted.begin(), sorted.end(), std::back_inserter(all));
  return Crew(seats_, std::move(all));
}

std::string Crew::ToString() const {
  std::string text = ranks_.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks_.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks_.size() ? " and " : ", ") + ranks_[i].ToString();
  return text + " of " + std::to_string(seats_);
}

}  // namespace kintsugi::core
