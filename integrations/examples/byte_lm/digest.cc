#define XXH_INLINE_ALL
#include "integrations/examples/byte_lm/digest.h"

#include <xxhash.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <new>

namespace kintsugi::byte_lm {
namespace {

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void Add(const float* values, size_t count) { XXH3_128bits_update(state_.get(), values, count * sizeof(float)); }
  Digest Finish() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.high64, hash.low64};
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

void AddParameters(const ParameterTable& table, const float* parameters, Hasher& hasher) {
  for (const Parameter& p : table.parameters()) hasher.Add(parameters + p.offset, p.count);
}

}  // namespace

std::string Digest::Hex() const {
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, high, low);
  return text;
}

Digest DigestState(const ParameterTable& table, const float* parameters, const AdamShard& optimizer) {
  return DigestState(table, parameters, optimizer.pieces(), optimizer.state());
}

Digest DigestState(const ParameterTable& table, const float* parameters, const std::vector<UpdatePiece>& pieces,
                   const OptimizerState& state) {
  Hasher hasher;
  AddParameters(table, parameters, hasher);
  for (const float* array : {state.master, state.exp_avg, state.exp_avg_sq}) {
    for (const UpdatePiece& piece : pieces) hasher.Add(array + piece.state_begin, piece.count);
  }
  return hasher.Finish();
}

Digest DigestParameters(const ParameterTable& table, const float* parameters) {
  Hasher hasher;
  AddParameters(table, parameters, hasher);
  return hasher.Finish();
}

}  // namespace kintsugi::byte_lm
