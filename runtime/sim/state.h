// The state of a virtual training job and what an undisturbed run makes of it.
//
// Every update mixes all it touches, so that an update left out, done twice or half, with a foreign gradient or on
// damaged memory gives other numbers for ever after.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/core/replica_map.h"

namespace kintsugi::sim {

// The simulator is made of the cores' words; its headers are seen by the command and the tests only.
using namespace core;

inline constexpr int kTensorsPerLayout = 3;

uint64_t Mix(uint64_t a, uint64_t b);

using Claims = std::map<Rank, std::map<int, GroupClaim>>;

// What one rank holds at one step: its shard of each layout and its own mirrored object.
struct RankState {
  std::map<int, std::vector<uint64_t>> tensors;
  uint64_t object = 0;
  bool operator==(const RankState&) const = default;
};

RankState InitialState(const ReplicaMap& replicas, Rank rank);
// The object moves in the forward pass, before the gradients.
uint64_t NextObject(uint64_t object, Rank rank);
// What the rank adds to the gradients of `step`; its object has moved already.
uint64_t Contribution(const RankState& state, uint64_t step);
// One of the small pieces an update consists of. REQUIRES: piece < PieceCount(state).
void UpdatePiece(RankState* state, size_t piece, uint64_t step, uint64_t gradient);
size_t PieceCount(const RankState& state);

// All ranks' states after each step of an undisturbed run.
class Reference {
 public:
  Reference(const ReplicaMap& replicas, int world_size, uint64_t steps);
  const RankState& At(uint64_t step, Rank rank) const { return states_[step][static_cast<size_t>(rank.value())]; }

 private:
  std::vector<std::vector<RankState>> states_;
};

}  // namespace kintsugi::sim
