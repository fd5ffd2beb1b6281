// BoundPlan: one rank's moves of a plan, with the memory they mean (private to this folder).
//
// What: a plan that was checked and whose bindings were checked too, so that its executor computes addresses
// and asks nothing any more: every address lies within the memory it was bound to.
// Errors: as execute.h says. Memory: 16 bytes for each own move.
// Ownership: refers to plan, metadata and bindings.
// Threads: does not change.
#pragma once

#include <map>
#include <vector>

#include "replica/plan/plan.h"
#include "replica/reshard/bindings.h"
#include "runtime/base/result.h"

namespace kintsugi::reshard {

// A move and what belongs to it.
struct BoundMove {
  uint64_t number = 0;  // in the plan
  const plan::Move* move = nullptr;
  const layout::KeyMeta* held = nullptr;
  layout::Box box;
  int64_t elements = 0;
  int64_t element_bytes = 0;              // 0: an object
  const Memory* source = nullptr;         // where this rank sends
  StridedMap source_map;                  // of a tensor's source
  const TargetBinding* target = nullptr;  // where this rank receives

  bool is_object() const { return element_bytes == 0; }
  // "tensor 'w', move 17 of [[0, 3)] from rank 3 to rank 5"
  std::string Name() const;
};

class BoundPlan {
 public:
  struct Entry {
    uint64_t number = 0;
    uint32_t key = 0;  // number of the plan's KeyMoves
  };

  static Result<BoundPlan> Bind(const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target,
                                int32_t rank, const Bindings& bindings);

  BoundMove Resolve(const Entry& entry) const;

  // Own moves in the order of the plan: by peer, and those within this rank.
  const std::map<int32_t, std::vector<Entry>>& outgoing() const { return outgoing_; }
  const std::map<int32_t, std::vector<Entry>>& incoming() const { return incoming_; }
  const std::vector<Entry>& local() const { return local_; }
  int32_t rank() const { return rank_; }
  int64_t BytesOf(const std::vector<Entry>& entries) const;
  // Over everything that both sides of a pair must agree on.
  uint64_t FingerprintOf(const std::vector<Entry>& entries) const;

 private:
  BoundPlan(const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target, int32_t rank,
            const Bindings& bindings)
      : plan_(&plan), source_(&source), target_(&target), bindings_(&bindings), rank_(rank) {}
  void Sort();
  Status CheckSource(const Entry& entry) const;
  Status CheckTarget(const Entry& entry) const;
  Status CheckApart() const;

  const plan::Plan* plan_;
  const layout::Metadata* source_;
  const layout::Metadata* target_;
  const Bindings* bindings_;
  int32_t rank_;
  std::map<int32_t, std::vector<Entry>> outgoing_, incoming_;
  std::vector<Entry> local_;
};

}  // namespace kintsugi::reshard
