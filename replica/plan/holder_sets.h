// HolderSets: the sets of ranks that hold the same piece, and who of a set sends (private to this folder).
//
// What: every distinct set is kept once. Of a set that has the receiver, the receiver copies its own; otherwise ranks
// on the receiver's host come before others, and among these a number decides that the planner counts up from request
// to request, so that they take turns. The choice depends on the request alone, not on what was planned before: a rank
// that plans only its own moves comes to the same answer.
// Threads: one while sets are added, then any.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "replica/layout/metadata.h"

namespace kintsugi::plan {

class HolderSets {
 public:
  // The host of each rank; ranks past the end are on hosts of their own. Empty: every rank is.
  explicit HolderSets(std::span<const int32_t> hosts) : hosts_(hosts) {}

  // The number of a set. REQUIRES: ascending, distinct, at least one.
  uint32_t Intern(std::span<const int32_t> ranks);

  std::span<const int32_t> Ranks(uint32_t set) const { return Slice(ranks_, set); }
  bool Has(uint32_t set, int32_t rank) const;

  // Ranks that may send to `to`: itself, those on its host, or all.
  std::span<const int32_t> Candidates(uint32_t set, const int32_t& to) const;

 private:
  std::span<const int32_t> Slice(const std::vector<int32_t>& of, uint32_t set) const {
    return {of.data() + first_[set], first_[set + 1] - first_[set]};
  }
  // A host that no other rank has is the rank's own number, shifted out of the way.
  int64_t Host(int32_t rank) const {
    return static_cast<size_t>(rank) < hosts_.size() ? hosts_[static_cast<size_t>(rank)] : int64_t{rank} + (1LL << 32);
  }

  const std::span<const int32_t> hosts_;
  std::vector<int32_t> ranks_;    // of each set, ascending
  std::vector<int32_t> by_host_;  // of each set, by host, then rank; empty without hosts
  std::vector<size_t> first_ = {0};
  std::unordered_multimap<uint64_t, uint32_t> by_hash_;
  uint32_t last_ = 0;
};

}  // namespace kintsugi::plan
