#include "runtime/sim/state.h"

namespace kintsugi::sim {

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9E3779B97F4A7C15ull + b + 0x632BE59BD9B4E019ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

RankState InitialState(const ReplicaMap& replicas, Rank rank) {
  RankState state;
  for (int layout : replicas.LayoutsOf(rank)) {
    const auto first = static_cast<uint64_t>(replicas.Holders(layout, rank).front().value());
    for (int i = 0; i < kTensorsPerLayout; ++i)
      state.tensors[layout].push_back(Mix(Mix(static_cast<uint64_t>(layout), first), static_cast<uint64_t>(i)));
  }
  state.object = Mix(777, static_cast<uint64_t>(rank.value()));
  return state;
}

uint64_t NextObject(uint64_t object, Rank rank) { return Mix(object, static_cast<uint64_t>(rank.value()) + 1); }

uint64_t Contribution(const RankState& state, uint64_t step) {
  uint64_t sum = Mix(state.object, step);
  for (const auto& [layout, tensors] : state.tensors)
    for (uint64_t value : tensors) sum = Mix(sum, value);
  return sum;
}

size_t PieceCount(const RankState& state) { return state.tensors.size() * kTensorsPerLayout; }

void UpdatePiece(RankState* state, size_t piece, uint64_t step, uint64_t gradient) {
  auto layout = state->tensors.begin();
  std::advance(layout, static_cast<long>(piece / kTensorsPerLayout));
  std::vector<uint64_t>& tensors = layout->second;
  const size_t i = piece % kTensorsPerLayout;
  tensors[i] = Mix(tensors[i] ^ Mix(tensors[(i + 1) % kTensorsPerLayout], step), gradient);
}

Reference::Reference(const ReplicaMap& replicas, int world_size, uint64_t steps) {
  states_.emplace_back();
  for (int r = 0; r < world_size; ++r) states_[0].push_back(InitialState(replicas, Rank(r)));
  for (uint64_t step = 1; step <= steps; ++step) {
    std::vector<RankState> next = states_.back();
    uint64_t gradient = 0;
    for (int r = 0; r < world_size; ++r) {
      RankState& state = next[static_cast<size_t>(r)];
      state.object = NextObject(state.object, Rank(r));
      gradient += Contribution(state, step);
    }
    for (RankState& state : next)
      for (size_t piece = 0; piece < PieceCount(state); ++piece) UpdatePiece(&state, piece, step, gradient);
    states_.push_back(std::move(next));
  }
}

}  // namespace kintsugi::sim
