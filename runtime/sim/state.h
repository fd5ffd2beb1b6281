// The state of a virtual training job and what an undisturbed run makes of it.
//
// Every update mixes all it touches, so that an update left out, done twice or half, with a foreign gradient or on
// damaged memory gives other numbers for ever after; and it leaves a mark on each tensor that it has passed.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/sim/cut.h"

namespace kintsugi::sim {

uint64_t Mix(uint64_t a, uint64_t b);

struct Tensor {
  uint64_t value = 0;
  uint64_t updates = 0;  // how many updates went over it
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::array<Tensor, kTensorsPerLayout>;

// A rank's shard of one layout; or, where any layout is offered, one of the cells that its shard is made of.
struct Shard {
  int layout = 0;
  int cell = 0;  // of all that are alike, wherever they are held
  Tensors tensors;
  bool operator==(const Shard&) const = default;
};

// A rank's own mirrored object: a generator, and the position of its data iterator.
struct Object {
  uint64_t value = 0;
  uint64_t position = 0;  // samples drawn so far
  bool operator==(const Object&) const = default;
};

// What one rank holds at one step.
struct RankState {
  std::vector<Shard> shards;  // ascending by layout, then cell
  Object object;

  // One tensor of the layout: what of it the rank holds.
  void TakeTensor(int layout, size_t tensor, const RankState& from);
  void SpoilTensor(int layout, size_t tensor, uint64_t with);
  // Null: it is not held.
  const Tensors* Find(int layout, int cell) const;
};

// The objects of the newest steps, the newest two for good and a third while a step is under way.
class ObjectHistory {
 public:
  void Put(uint64_t step, const Object& object);
  const Object* Find(uint64_t step) const;
  void DropAfter(uint64_t step);
  void KeepNewest(size_t count);
  void Clear() { count_ = 0; }

 private:
  struct Kept {
    uint64_t step = 0;
    Object object;
  };
  std::array<Kept, 3> kept_;  // ascending by step
  size_t count_ = 0;
};

RankState InitialState(const Cut& cut, Rank rank);
// The object moves in the forward pass, before the gradients: it draws one sample.
Object NextObject(const Object& object, Rank rank);
// Its sample is passed by, and nothing is drawn.
inline Object PassedBy(const Object& object) { return {object.value, object.position + 1}; }
// The sample that a rank's iterator gives at this position, counted over all ranks.
inline uint64_t SampleAt(const Object& object, Rank rank, int world_size) {
  return (object.position - 1) * static_cast<uint64_t>(world_size) + static_cast<uint64_t>(rank.value());
}
// What an undisturbed run makes of it by that step.
Object ObjectAfter(Rank rank, uint64_t step);
// What the rank adds to the gradients of `step`; its object has moved already. `object`: its own, or that of a rank with
// the same shards, whose part of the batch it does.
uint64_t Contribution(const RankState& state, const Object& object, uint64_t step);
inline uint64_t Contribution(const RankState& state, uint64_t step) { return Contribution(state, state.object, step); }
// Where any layout is offered, parts of the batch and cells give what they give wherever they are.
uint64_t ContributionOf(const Object& object, uint64_t step);
uint64_t ContributionOf(const RankState& state, const std::vector<int>& cells, uint64_t step);
// One of the small pieces an update consists of. REQUIRES: piece < PieceCount(state).
void UpdatePiece(RankState* state, size_t piece, uint64_t step, uint64_t gradient);
size_t PieceCount(const RankState& state);
// The same of an update that is empty: the step is left out.
void PassPiece(RankState* state, size_t piece);
// Over the values of one layout's tensors.
uint64_t DigestOf(const Tensors& tensors);

// All ranks' states after each step of an undisturbed run; computed as far as it is asked for.
class Reference {
 public:
  explicit Reference(const Cuts& cuts);
  // Of a rank that takes part in the cut.
  const RankState& At(uint64_t step, Rank rank, const Cut& cut) const;
  // ... of all seats.
  const RankState& At(uint64_t step, Rank rank) const { return At(step, rank, cuts_.whole()); }
  const Tensors& OfCell(uint64_t step, int cell) const;

  // An undisturbed run passes this step by, or makes it after all: what followed it in another run is forgotten.
  void LeaveOut(uint64_t step);
  void Keep(uint64_t step);
  bool LeavesOut(uint64_t step) const { return left_out_.count(step) > 0; }

 private:
  void ForgetFrom(uint64_t step);
  void ComputeTo(uint64_t step) const;

  const Cuts& cuts_;
  std::set<uint64_t> left_out_;
  // Caches: what is asked for is computed once.
  mutable std::vector<std::vector<RankState>> states_;
  mutable std::map<std::tuple<uint64_t, Rank, const Cut*>, RankState> recut_;
};

}  // namespace kintsugi::sim
