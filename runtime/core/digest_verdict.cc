#include "runtime/core/digest_verdict.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// So many must have a say before a majority of them means anything: of two that differ neither has one.
constexpr size_t kOpinionsLeast = 3;

// 0: a rank without a state service reports nothing, and has nothing to compare.
uint64_t DigestOf(const Digests& digests, Rank rank, int layout) {
  const auto r = static_cast<size_t>(rank.value());
  if (r >= digests.size()) return 0;
  const auto found = digests[r].find(layout);
  return found == digests[r].end() ? 0 : found->second;
}

Copy CopyOf(const std::vector<Copy>& copies, Rank rank) {
  return copies.empty() ? Copy::kUntouched : copies[static_cast<size_t>(rank.value())];
}

struct Voter {
  Rank rank;
  uint64_t digest = 0;
  Copy copy = Copy::kUntouched;
};

bool AllAgree(const std::vector<Voter>& voters) {
  return std::all_of(voters.begin(), voters.end(),
                     [&](const Voter& voter) { return voter.digest == voters.front().digest; });
}

// The first of those that say what more than half of all with a say of their own do.
const Voter* Majority(const std::vector<Voter>& voters) {
  std::map<uint64_t, size_t> says;
  size_t opinions = 0;
  for (const Voter& voter : voters)
    if (voter.copy > Copy::kStreamed) ++says[voter.digest], ++opinions;
  if (opinions < kOpinionsLeast) return nullptr;
  const auto found = std::find_if(voters.begin(), voters.end(), [&](const Voter& voter) {
    return voter.copy > Copy::kStreamed && 2 * says[voter.digest] > opinions;
  });
  return found == voters.end() ? nullptr : &*found;
}

// REQUIRES: they do not all agree.
DigestVerdict Judge(int layout, const std::vector<Voter>& voters) {
  const Voter* right = Majority(voters);
  const auto top =
      std::max_element(voters.begin(), voters.end(), [](const Voter& a, const Voter& b) { return a.copy < b.copy; });
  if (!right && std::all_of(voters.begin(), voters.end(), [&](const Voter& voter) {
        return voter.copy != top->copy || voter.digest == top->digest || top->copy == Copy::kStreamed;
      }))
    right = &*top;
  DigestVerdict verdict{
      .equal = false, .attributed = right != nullptr, .layout = layout, .expected = {}, .differs = {}, .odd = {}};
  const Voter& expected = right ? *right : *top;
  verdict.expected = expected.rank;
  const auto other =
      std::find_if(voters.begin(), voters.end(), [&](const Voter& voter) { return voter.digest != expected.digest; });
  KINTSUGI_CHECK(other != voters.end(), "copies of layout " + std::to_string(layout) + " are judged, and all agree");
  verdict.differs = other->rank;
  for (const Voter& voter : voters)
    if (!right || voter.digest != expected.digest) verdict.odd.push_back(voter.rank);
  return verdict;
}

}  // namespace

DigestVerdict CompareDigests(const ReplicaMap& replicas, const Digests& digests, const std::vector<Copy>& copies,
                             bool strict) {
  for (const ReplicaMap::Shard& shard : replicas.shards()) {
    std::vector<Voter> voters;
    for (Rank holder : shard.holders) {
      Copy copy = CopyOf(copies, holder);
      if (copy == Copy::kAbsent) continue;
      if (strict && copy == Copy::kAdopted) copy = Copy::kUntouched;
      voters.push_back({holder, DigestOf(digests, holder, shard.layout), copy});
    }
    if (!AllAgree(voters)) return Judge(shard.layout, voters);
  }
  return {};
}

DigestVerdict CompareWithRecord(const ReplicaMap& replicas, const Digests& digests, const Digests& recorded,
                                const std::vector<Copy>& copies) {
  for (const ReplicaMap::Shard& shard : replicas.shards()) {
    DigestVerdict verdict{false, true, shard.layout, Rank(-1), Rank(-1), {}};
    for (Rank holder : shard.holders) {
      if (CopyOf(copies, holder) == Copy::kAbsent) continue;
      if (DigestOf(digests, holder, shard.layout) == DigestOf(recorded, holder, shard.layout))
        verdict.expected = holder;
      else
        verdict.odd.push_back(holder);
    }
    if (verdict.odd.empty()) continue;
    verdict.differs = verdict.odd.front();
    if (verdict.expected.value() < 0) verdict.expected = verdict.differs;
    return verdict;
  }
  return {};
}

std::string ToString(const DigestVerdict& verdict, Step step) {
  const std::string where = " at step " + step.ToString();
  const std::string layout = "layout " + std::to_string(verdict.layout) + ": ";
  if (verdict.differs == verdict.expected)
    return layout + "rank " + verdict.expected.ToString() + " holds other state than was recorded of it" + where;
  return layout + "ranks " + verdict.expected.ToString() + " and " + verdict.differs.ToString() +
         " hold different state" + where;
}

}  // namespace kintsugi::core
