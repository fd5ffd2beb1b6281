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

void RankState::TakeTensor(int layout, size_t tensor, const RankState& from) {
  for (Shard& shard : shards) {
    if (shard.layout != layout) continue;
    const Tensors* const held = from.Find(layout, shard.cell);
    KINTSUGI_CHECK(held, "layout " + std::to_string(layout) + " is taken from who does not hold it");
    shard.tensors[tensor] = (*held)[tensor];
  }
}

void RankState::SpoilTensor(int layout, size_t tensor, uint64_t with) {
  for (Shard& shard : shards)
    if (shard.layout == layout) shard.tensors[tensor].value = Mix(shard.tensors[tensor].value, with);
}

const Tensors* RankState::Find(int layout, int cell) const {
  for (const Shard& shard : shards)
    if (shard.layout == layout && shard.cell == cell) return &shard.tensors;
  return nullptr;
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

RankState InitialState(const Cut& cut, Rank rank) {
  RankState state;
  for (const auto& [layout, cell] : cut.CellsOf(rank)) {
    Shard shard{layout, cell, {}};
    for (size_t i = 0; i < kTensorsPerLayout; ++i)
      shard.tensors[i].value = Mix(Mix(static_cast<uint64_t>(layout), static_cast<uint64_t>(cell)), i);
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

uint64_t ContributionOf(const Object& object, uint64_t step) { return Mix(Mix(object.value, object.position), step); }

uint64_t ContributionOf(const RankState& state, const std::vector<int>& cells, uint64_t step) {
  uint64_t sum = 0;
  for (const int cell : cells) {
    uint64_t value = step;
    for (const Tensor& tensor : *state.Find(0, cell)) value = Mix(value, tensor.value);
    sum += value;
  }
  return sum;
}

// Cells of one layout go together.
size_t PieceCount(const RankState& state) {
  size_t layouts = 0;
  for (size_t i = 0; i < state.shards.size(); ++i)
    layouts += i == 0 || state.shards[i].layout != state.shards[i - 1].layout;
  return layouts * kTensorsPerLayout;
}

namespace {

// In each shard of the piece's layout the tensor that it is.
template <typename Visit>
void ForEachOfPiece(RankState* state, size_t piece, Visit visit) {
  size_t layouts = 0;
  for (size_t at = 0; at < state->shards.size(); ++at) {
    layouts += at == 0 || state->shards[at].layout != state->shards[at - 1].layout;
    if (layouts - 1 == piece / kTensorsPerLayout) visit(state->shards[at].tensors, piece % kTensorsPerLayout);
  }
}

}  // namespace

void UpdatePiece(RankState* state, size_t piece, uint64_t step, uint64_t gradient) {
  ForEachOfPiece(state, piece, [&](Tensors& tensors, size_t i) {
    tensors[i].value = Mix(tensors[i].value ^ Mix(tensors[(i + 1) % kTensorsPerLayout].value, step), gradient);
    ++tensors[i].updates;
  });
}

void PassPiece(RankState* state, size_t piece) {
  ForEachOfPiece(state, piece, [](Tensors& tensors, size_t i) { ++tensors[i].updates; });
}

uint64_t DigestOf(const Tensors& tensors) {
  uint64_t digest = 0;
  for (const Tensor& tensor : tensors) digest = Mix(digest, tensor.value);
  return digest;
}

Reference::Reference(const Cuts& cuts) : cuts_(cuts) {
  states_.emplace_back();
  for (Rank rank : cuts.whole().crew.ranks()) states_[0].push_back(InitialState(cuts.whole(), rank));
}

void Reference::LeaveOut(uint64_t step) {
  if (left_out_.insert(step).second) ForgetFrom(step);
}

void Reference::Keep(uint64_t step) {
  if (left_out_.erase(step) > 0) ForgetFrom(step);
}

void Reference::ForgetFrom(uint64_t step) {
  if (states_.size() > step) states_.resize(step);
  std::erase_if(recut_, [step](const auto& known) { return std::get<0>(known.first) >= step; });
}

void Reference::ComputeTo(uint64_t step) const {
  while (states_.size() <= step) {
    const uint64_t number = states_.size();
    std::vector<RankState> next = states_.back();
    if (LeavesOut(number)) {
      for (RankState& state : next) {
        state.object = PassedBy(state.object);
        for (size_t piece = 0; piece < PieceCount(state); ++piece) PassPiece(&state, piece);
      }
      states_.push_back(std::move(next));
      continue;
    }
    uint64_t gradient = 0;
    for (size_t r = 0; r < next.size(); ++r) {
      const Rank rank(static_cast<int32_t>(r));
      next[r].object = NextObject(next[r].object, rank);
      gradient += cuts_.any_layout() ? ContributionOf(next[r].object, number) +
                                           ContributionOf(next[r], cuts_.whole().MainCellsOf(rank), number)
                                     : Contribution(next[r], number);
    }
    for (RankState& state : next)
      for (size_t piece = 0; piece < PieceCount(state); ++piece) UpdatePiece(&state, piece, number, gradient);
    states_.push_back(std::move(next));
  }
}

const Tensors& Reference::OfCell(uint64_t step, int cell) const {
  ComputeTo(step);
  for (const RankState& state : states_[step])
    if (const Tensors* const held = state.Find(0, cell)) return *held;
  KINTSUGI_CHECK(false, "cell " + std::to_string(cell) + " is with nobody");
}

const RankState& Reference::At(uint64_t step, Rank rank, const Cut& cut) const {
  ComputeTo(step);
  const RankState& whole = states_[step][static_cast<size_t>(rank.value())];
  if (&cut == &cuts_.whole()) return whole;
  const auto [at, is_new] = recut_.try_emplace({step, rank, &cut});
  if (!is_new) return at->second;
  at->second.object = whole.object;
  for (const auto& [layout, cell] : cut.CellsOf(rank)) at->second.shards.push_back({layout, cell, OfCell(step, cell)});
  return at->second;
}

}  // namespace kintsugi::sim
