#include "runtime/core/snapshot_partners.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// Ranks that keep no more than a certain number of copies; those that are taken out are jumped over.
class Free {
 public:
  explicit Free(size_t n) : next_(n + 1) { std::iota(next_.begin(), next_.end(), size_t{0}); }
  void TakeOut(size_t i) { next_[i] = i + 1; }
  // The first from `i` on; n: none.
  size_t From(size_t i) {
    size_t found = i;
    while (next_[found] != found) found = next_[found];
    while (next_[i] != found) i = std::exchange(next_[i], found);
    return found;
  }

 private:
  std::vector<size_t> next_;
};

class Chooser {
 public:
  Chooser(const ReplicaMap& replicas, const std::vector<std::string>& hosts, const Crew& crew)
      : replicas_(replicas), crew_(crew), n_(crew.size()), host_(n_), run_end_(n_), kept_(n_, 0) {
    std::map<std::string, size_t> numbers;
    for (size_t i = 0; i < n_; ++i) {
      const std::string& host = hosts[static_cast<size_t>(RankOf(i).value())];
      host_[i] = numbers.emplace(host, numbers.size()).first->second;
    }
    on_host_.resize(numbers.size());
    for (size_t i = n_; i-- > 0;) {
      run_end_[i] = i + 1 < n_ && host_[i] == host_[i + 1] ? run_end_[i + 1] : i + 1;
      ++on_host_[host_[i]];
    }
  }

  SnapshotPartner Choose(size_t rank) {
    const std::vector<size_t> group = Avoided(RankOf(rank));
    const auto here = static_cast<size_t>(
        std::count_if(group.begin(), group.end(), [&](size_t r) { return host_[r] == host_[rank]; }));
    const bool elsewhere = n_ - on_host_[host_[rank]] > group.size() - here;
    if (!elsewhere && n_ - 1 == group.size())
      return {std::nullopt, n_ == 1 ? "there is no other rank" : "every other rank is in its replica groups"};
    const size_t found = Find(rank, group, elsewhere);
    ++kept_[found];
    if (kept_[found] > levels_.size() - 1) levels_.emplace_back(n_);
    for (size_t level = 0; level < kept_[found]; ++level) levels_[level].TakeOut(found);
    return {RankOf(found),
            elsewhere ? "" : "no rank outside its replica groups is on another host"};
  }

 private:
  // Who shares a shard with the rank. Where that is everybody (something small is held by all beside what is cut into
  // shards, as an optimizer's count of steps), only who shares the shard with the fewest copies: that one is lost
  // first.
  std::vector<size_t> Avoided(Rank rank) const {
    std::vector<Rank> group = replicas_.Partners(rank);
    if (group.size() < n_ - 1) return NumbersOf(group);
    for (int layout : replicas_.LayoutsOf(rank)) {
      const std::vector<Rank>& holders = replicas_.Holders(layout, rank);
      if (holders.size() - 1 < group.size()) group = holders;
      group.erase(std::remove(group.begin(), group.end(), rank), group.end());
    }
    return NumbersOf(group);
  }

  Rank RankOf(size_t number) const { return crew_.At(static_cast<int>(number)); }
  std::vector<size_t> NumbersOf(const std::vector<Rank>& ranks) const {
    std::vector<size_t> numbers;
    numbers.reserve(ranks.size());
    for (Rank rank : ranks) numbers.push_back(static_cast<size_t>(crew_.NumberOf(rank)));
    return numbers;
  }

  // REQUIRES: one fits.
  size_t Find(size_t rank, const std::vector<size_t>& group, bool elsewhere) {
    for (size_t level = 0;; ++level) {
      KINTSUGI_CHECK(level <= n_, "no rank fits as the partner of rank " + std::to_string(rank));
      if (level == levels_.size()) levels_.emplace_back(n_);
      // Upwards from the rank, then from the beginning.
      size_t found = Scan(level, rank + 1, n_, rank, group, elsewhere);
      if (found == n_) found = Scan(level, 0, rank, rank, group, elsewhere);
      if (found != n_) return found;
    }
  }

  size_t Scan(size_t level, size_t begin, size_t end, size_t rank, const std::vector<size_t>& group, bool elsewhere) {
    for (size_t i = levels_[level].From(begin); i < end; i = levels_[level].From(i)) {
      if (elsewhere && host_[i] == host_[rank])
        i = run_end_[i];
      else if (std::binary_search(group.begin(), group.end(), i))
        ++i;
      else
        return i;
    }
    return n_;
  }

  const ReplicaMap& replicas_;
  const Crew& crew_;
  const size_t n_;               // all of these go by numbers in the crew, not by ranks
  std::vector<size_t> host_;     // its number, by rank
  std::vector<size_t> run_end_;  // by rank: the first one behind it on another host
  std::vector<size_t> on_host_;  // ranks, by host
  std::vector<size_t> kept_;     // copies, by rank
  std::vector<Free> levels_;     // those that keep at most 0, 1, ... copies
};

}  // namespace

std::vector<SnapshotPartner> ChooseSnapshotPartners(const ReplicaMap& replicas, const std::vector<std::string>& hosts,
                                                    const Crew& crew) {
  Chooser chooser(replicas, hosts, crew);
  std::vector<SnapshotPartner> partners(hosts.size(), {std::nullopt, "it takes no part", false});
  for (size_t number = 0; number < crew.size(); ++number)
    partners[static_cast<size_t>(crew.At(static_cast<int>(number)).value())] = chooser.Choose(number);
  return partners;
}

}  // namespace kintsugi::core
