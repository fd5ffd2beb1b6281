// KeyPlanner: plans one key after the other into a plan (private to this folder).
//
// Turns of holders: the requests for one share are counted by arithmetic, as if the target's pieces of this key were a
// grid of boxes like the one that asks, each flat-cut like it, each asked for by as many ranks; and the count starts at
// the number of shares with the same holders before it in this key, plus the number of keys of the same size before
// this one. For regular layouts that is exact, so holders of one set serve equally many requests of one size, give or
// take one; for others it is some number, equal on every rank.
#pragma once

#include <map>

#include "replica/plan/hit_finder.h"
#include "replica/plan/planner.h"

namespace kintsugi::plan {

class KeyPlanner {
 public:
  KeyPlanner(const layout::Metadata& source, const layout::Metadata& target, const PlanOptions& options,
             uint64_t* steps, Plan* out);

  // REQUIRES: CheckRequest has passed; keys come in order.
  std::optional<layout::LayoutError> Add(uint32_t target_key);

 private:
  std::optional<layout::LayoutError> PlanAll(const layout::KeyMeta& key);
  std::optional<layout::LayoutError> PlanOwn(const layout::KeyMeta& key, int32_t rank);
  bool Concerns(const layout::Metadata& metadata, const layout::KeyMeta& key, int32_t rank) const;
  void FindSends(const layout::KeyMeta& key, int32_t rank);
  Result<Wanted, layout::LayoutError> WantedOf(const layout::KeyMeta& key, const layout::PieceView& piece) const;
  layout::LayoutError Missing(const layout::KeyMeta& key, const layout::PieceView& piece) const;

  void Receive(uint32_t piece_number, const layout::PieceView& piece, const Wanted& wanted, int32_t to);
  void Push(size_t hit, uint32_t target_piece, int32_t from, int32_t to);
  int32_t Choose(const SourceIndex::Share& share, const layout::PieceView& piece, const Wanted& wanted, int32_t to);
  uint64_t RequestNumber(const SourceIndex::Share& share, const layout::PieceView& piece, const Wanted& wanted,
                         int32_t to);
  const std::vector<int32_t>& AskersOf(const layout::PieceView& piece, uint32_t holders);
  bool IsOwn(uint32_t share) const { return sets_.Has(index_.shares()[share].holders, *options_.rank); }

  const layout::Metadata& source_;
  const layout::Metadata& target_;
  const PlanOptions& options_;
  uint64_t& steps_;
  Plan& plan_;
  HolderSets sets_;
  SourceIndex index_;
  HitFinder finder_;
  int64_t element_bytes_ = 0;
  layout::Box common_;
  bool is_clipped_ = false;
  uint64_t key_turn_ = 0;
  std::map<std::pair<int64_t, int64_t>, uint64_t> keys_of_size_;  // element bytes and elements -> keys so far
  // For one target piece: for each set of holders the ranks that ask for it and are not of the set.
  const layout::Holder* askers_of_ = nullptr;
  std::unordered_map<uint32_t, std::vector<int32_t>> askers_;
  // For the plan of one rank: for each target piece the own shares that it meets.
  std::vector<std::pair<uint32_t, uint32_t>> sends_;
  BoxIndex own_boxes_;
};

}  // namespace kintsugi::plan
