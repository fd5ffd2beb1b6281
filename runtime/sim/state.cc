#include "runtime/sim/state.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::sim {

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9E3779B97F4A7C15ull + b + 0x632BE59BD9B4E019ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

Tensors& RankState::Of(int layout) {
  for (Shard& shard : shards)
    if (shard.layout == layout) return shard.tensors;
  KINTSUGI_CHECK(false, "the rank holds nothing of layout " + std::to_string(layout));
}

void ObjectHistory::Put(uint64_t step, const Object& object) {
  size_t i = 0;
  while (i < count_ && kept_[i].step < step) ++i;
  if (i < count_ && kept_[i].step == step) {
    kept_[i].object = object;
    return;
  }
  if (count_ == kept_.size()) {
    if (i == 0) return;  // older than all that is kept
    std::move(kept_.begin() + 1, kept_.begin() + static_cast<long>(i), kept_.begin());
    kept_[i - 1] = {step, object};
    return;
  }
  std::move_backward(kept_.begin() + static_cast<long>(i), kept_.begin() + static_cast<long>(count_),
                     kept_.begin() + static_cast<long>(count_) + 1);
  kept_[i] = {step, object};
  ++count_;
}

const Object* ObjectHistory::Find(uint64_t step) const {
  for (size_t i = 0; i < count_; ++i)
    if (kept_[i].step == step) return &kept_[i].object;
  return nullptr;
}

void ObjectHistory::DropAfter(uint64_t step) {
  while (count_ > 0 && kept_[count_ - 1].step > step) --count_;
}

void ObjectHistory::KeepNewest(size_t count) {
  if (count_ <= count) return;
  std::move(kept_.begin() + static_cast<long>(count_ - count), kept_.begin() + static_cast<long>(count_),
            kept_.begin());
  count_ = count;
}

RankState InitialState(const ReplicaMap& replicas, Rank rank) {
  RankState state;
  for (int layout : replicas.LayoutsOf(rank)) {
    const auto first = static_cast<uint64_t>(replicas.Holders(layout, rank).front().value());
    Shard shard{layout, {}};
    for (size_t i = 0; i < kTensorsPerLayout; ++i)
      shard.tensors[i].value = Mix(Mix(static_cast<uint64_t>(layout), first), i);
    state.shards.push_back(shard);
  }
  state.object = ObjectAfter(rank, 0);
  return state;
}

Object NextObject(const Object& object, Rank rank) {
  return {Mix(object.value, static_cast<uint64_t>(rank.value()) + 1), object.position + 1};
}

Object ObjectAfter(Rank rank, uint64_t step) {
  Object object{Mix(777, static_cast<uint64_t>(rank.value())), 0};
  for (uint64_t i = 0; i < step; ++i) object = NextObject(object, rank);
  return object;
}

uint64_t Contribution(const RankState& state, const Object& object, uint64_t step) {
  uint64_t sum = Mix(Mix(object.value, object.position), step);
  for (const Shard& shard : state.shards)
    for (const Tensor& tensor : shard.tensors) sum = Mix(sum, tensor.value);
  return sum;
}

size_t PieceCount(const RankState& state) { return state.shards.size() * kTensorsPerLayout; }

void UpdatePiece(RankState* state, size_t piece, uint64_t step, uint64_t gradient) {
  Tensors& tensors = state->shards[piece / kTensorsPerLayout].tensors;
  const size_t i = piece % kTensorsPerLayout;
  tensors[i].value = Mix(tensors[i].value ^ Mix(tensors[(i + 1) % kTensorsPerLayout].value, step), gradient);
  ++tensors[i].updates;
}

uint64_t DigestOf(const Tensors& tensors) {
  uint64_t digest = 0;
  for (const Tensor& tensor : tensors) digest = Mix(digest, tensor.value);
  return digest;
}

Reference::Reference(const ReplicaMap& replicas, int world_size) {
  states_.emplace_back();
  for (int r = 0; r < world_size; ++r) states_[0].push_back(InitialState(replicas, Rank(r)));
}

const RankState& Reference::At(uint64_t step, Rank rank) const {
  while (states_.size() <= step) {
    const uint64_t number = states_.size();
    std::vector<RankState> next = states_.back();
    uint64_t gradient = 0;
    for (size_t r = 0; r < next.size(); ++r) {
      next[r].object = NextObject(next[r].object, Rank(static_cast<int32_t>(r)));
      gradient += Contribution(next[r], number);
    }
    for (RankState& state : next)
      for (size_t piece = 0; piece < PieceCount(state); ++piece) UpdatePiece(&state, piece, number, gradient);
    states_.push_back(std::move(next));
  }
  return states_[step][static_cast<size_t>(rank.value())];
}

}  // namespace kintsugi::sim
