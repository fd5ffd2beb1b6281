#include "runtime/core/offers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

std::string ListOf(const std::vector<int>& numbers) {
  std::string text;
  for (int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

Status Misfit(std::string text) { return {StatusCode::kInvalidArgument, std::move(text)}; }

bool IsOffer(const Offer* offer) { return offer && !offer->worlds.empty(); }

Status CheckOffer(const Crew& crew, Rank rank, const Offer& offer) {
  const auto ascending = [](const auto& all) {
    return std::is_sorted(all.begin(), all.end()) && std::adjacent_find(all.begin(), all.end()) == all.end();
  };
  const std::string who = "the slice that rank " + rank.ToString() + " offers ";
  if (offer.any_layout && offer.slice.size() != 1) return Misfit(who + "is not itself alone, with any layout");
  if (!ascending(offer.slice)) return Misfit(who + "is not ascending, without repeats");
  if (!std::binary_search(offer.slice.begin(), offer.slice.end(), rank)) return Misfit(who + "is without it");
  for (Rank other : offer.slice)
    if (!crew.Has(other)) return Misfit(who + "has rank " + other.ToString() + ", which takes no part");
  if (!ascending(offer.worlds) || offer.worlds.front() < 1)
    return Misfit("the worlds that rank " + rank.ToString() + " offers, " + ListOf(offer.worlds) +
                  ", are not ascending from 1 on, without repeats");
  return Status::Ok();
}

}  // namespace

Result<OfferedWorlds> OfferedBy(const Crew& crew, const std::function<const Offer*(Rank)>& offer) {
  OfferedWorlds slices;
  std::map<Rank, std::vector<Rank>> slice_of;
  Rank first(-1);
  for (Rank rank : crew.ranks()) {
    const Offer* const its = offer(rank);
    if (!IsOffer(its)) continue;
    KINTSUGI_RETURN_IF_ERROR(CheckOffer(crew, rank, *its));
    if (first.value() < 0) first = rank, slices.worlds = its->worlds, slices.any_layout = its->any_layout;
    if (its->any_layout != slices.any_layout)
      return Misfit("rank " + first.ToString() + " offers " + (slices.any_layout ? "any layout" : "slices") +
                    ", rank " + rank.ToString() + " does not");
    if (its->worlds != slices.worlds)
      return Misfit("rank " + first.ToString() + " offers worlds of " + ListOf(slices.worlds) + " ranks, rank " +
                    rank.ToString() + " of " + ListOf(its->worlds));
    for (Rank member : its->slice) {
      const auto [at, is_new] = slice_of.emplace(member, its->slice);
      if (!is_new && at->second != its->slice)
        return Misfit("rank " + member.ToString() + " is in two slices, by what rank " + rank.ToString() +
                      " and others offer");
    }
  }
  if (first.value() < 0) return slices;
  slices.of_slice = slice_of.at(first).size();
  std::vector<Rank> unknown;
  for (Rank rank : crew.ranks()) {
    const Offer* const its = offer(rank);
    if (its && !IsOffer(its))
      return Misfit("rank " + first.ToString() + " offers other worlds, rank " + rank.ToString() + " none");
    const auto known = slice_of.find(rank);
    if (known == slice_of.end())
      unknown.push_back(rank);
    else if (known->second.size() != slices.of_slice)
      return Misfit("the slice of rank " + rank.ToString() + " has " + std::to_string(known->second.size()) +
                    " ranks, that of rank " + first.ToString() + " has " + std::to_string(slices.of_slice));
  }
  if (unknown.size() % slices.of_slice != 0)
    return Misfit("nobody here knows the slices of " + std::to_string(unknown.size()) + " ranks, rank " +
                  unknown.front().ToString() + " among them, and so many are not made up of slices of " +
                  std::to_string(slices.of_slice));
  for (Rank rank : unknown) slice_of.emplace(rank, slices.of_slice == 1 ? std::vector<Rank>{rank} : unknown);
  for (const auto& [rank, slice] : slice_of)
    if (slice.front() == rank) slices.all.push_back(slice);
  return slices;
}

Result<Crew> ChooseSmaller(const Crew& crew, const OfferedWorlds& slices, const std::vector<Rank>& lost,
                           const std::function<bool(Rank)>& weak) {
  KINTSUGI_CHECK(!lost.empty() && !slices.all.empty(), "a smaller world is looked for where nothing is lost");
  const auto is_lost = [&](Rank rank) { return std::find(lost.begin(), lost.end(), rank) != lost.end(); };
  struct Kept {
    const std::vector<Rank>* slice;
    bool weak;
  };
  std::vector<Kept> kept;
  std::vector<Rank> leaving;
  for (const std::vector<Rank>& slice : slices.all) {
    if (std::any_of(slice.begin(), slice.end(), is_lost))
      leaving.insert(leaving.end(), slice.begin(), slice.end());
    else
      kept.push_back({&slice, std::any_of(slice.begin(), slice.end(), weak)});
  }
  std::stable_sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.weak < b.weak; });
  const auto offered = [&](size_t size) {
    return std::binary_search(slices.worlds.begin(), slices.worlds.end(), static_cast<int>(size));
  };
  const size_t most = crew.size() - leaving.size();
  while (!kept.empty() && !offered(crew.size() - leaving.size())) {
    leaving.insert(leaving.end(), kept.back().slice->begin(), kept.back().slice->end());
    kept.pop_back();
  }
  if (kept.empty())
    return Status(StatusCode::kNotFound,
                  "no world of " + std::to_string(most) + " ranks or fewer is offered that its slices of " +
                      std::to_string(slices.of_slice) + " make up: offered are " + ListOf(slices.worlds));
  return crew.Without(leaving);
}

namespace {

Status CheckSize(const OfferedWorlds& slices, int ranks) {
  KINTSUGI_CHECK(!slices.all.empty(), "a world is looked for where none is offered");
  const size_t of_slice = slices.of_slice;
  if (!std::binary_search(slices.worlds.begin(), slices.worlds.end(), ranks))
    return {StatusCode::kNotFound,
            "no world of " + std::to_string(ranks) + " ranks is offered: offered are " + ListOf(slices.worlds)};
  if (static_cast<size_t>(ranks) % of_slice != 0)
    return {StatusCode::kNotFound,
            "a world of " + std::to_string(ranks) + " ranks is not made up of slices of " + std::to_string(of_slice)};
  return Status::Ok();
}

}  // namespace

Result<Crew> ChooseFewer(const Crew& crew, const OfferedWorlds& slices, int ranks) {
  KINTSUGI_RETURN_IF_ERROR(CheckSize(slices, ranks));
  KINTSUGI_CHECK(static_cast<size_t>(ranks) < crew.size(), "fewer ranks are looked for than there are");
  std::vector<Rank> leaving;
  for (auto slice = slices.all.rbegin(); crew.size() - leaving.size() > static_cast<size_t>(ranks); ++slice)
    leaving.insert(leaving.end(), slice->begin(), slice->end());
  if (crew.size() - leaving.size() < static_cast<size_t>(ranks))
    return Status(StatusCode::kNotFound, "the slices of some ranks are not known: they can only leave together");
  return crew.Without(leaving);
}

Result<Crew> ChooseMore(const Crew& crew, const OfferedWorlds& slices, int ranks, const std::function<bool(Rank)>& free,
                        const std::function<const Offer*(Rank)>& offer) {
  KINTSUGI_RETURN_IF_ERROR(CheckSize(slices, ranks));
  KINTSUGI_CHECK(static_cast<size_t>(ranks) > crew.size(), "more ranks are looked for than there are");
  const size_t of_slice = slices.of_slice, wanted = static_cast<size_t>(ranks) - crew.size();
  std::vector<Rank> coming, unknown;
  const auto is_free = [&](Rank rank) {
    return rank.value() >= 0 && rank.value() < crew.seats() && !crew.Has(rank) && free(rank) &&
           std::find(coming.begin(), coming.end(), rank) == coming.end();
  };
  for (int seat = 0; seat < crew.seats() && coming.size() < wanted; ++seat) {
    const Rank rank(seat);
    if (!is_free(rank)) continue;
    const Offer* const its = of_slice == 1 ? nullptr : offer(rank);
    const std::vector<Rank> slice = IsOffer(its) ? its->slice : std::vector<Rank>{rank};
    if (slice.size() == of_slice && std::all_of(slice.begin(), slice.end(), is_free))
      coming.insert(coming.end(), slice.begin(), slice.end());
    else if (!IsOffer(its))
      unknown.push_back(rank);
  }
  std::erase_if(unknown, [&](Rank rank) { return !is_free(rank); });  // of a slice that another knew
  // Where their slices are not known, neighbours are tried: who comes says what it is, and where that does not fit the next choice knows.
  for (size_t at = 0; at + of_slice <= unknown.size() && coming.size() < wanted; at += of_slice)
    coming.insert(coming.end(), unknown.begin() + static_cast<ptrdiff_t>(at),
                  unknown.begin() + static_cast<ptrdiff_t>(at + of_slice));
  if (coming.size() < wanted)
    return Status(StatusCode::kNotFound, "of the " + std::to_string(static_cast<size_t>(crew.seats()) - crew.size()) +
                                             " empty places " + std::to_string(coming.size()) +
                                             " can be had, in whole slices of " + std::to_string(of_slice) + ": " +
                                             std::to_string(wanted) + " are wanted");
  return crew.With(coming);
}

}  // namespace kintsugi::core
