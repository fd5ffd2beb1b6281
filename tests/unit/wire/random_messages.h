// Control messages with random contents, every kind as often as every other.
#pragma once

#include <random>

#include "runtime/wire/codec.h"

namespace kintsugi::wire {

class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : random_(seed) {}

  core::Header Header();
  core::AgentMessage Agent(size_t kind);
  core::ControllerMessage Controller(size_t kind);
  RankReport Report();
  uint64_t Below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }

 private:
  uint64_t Any() { return random_() >> Below(64); }
  int64_t AnySigned() { return static_cast<int64_t>(random_()) >> Below(64); }
  bool Flip() { return Below(2) == 1; }
  Step AnyStep() { return Step(Any() & core::GateWord::kStepMask); }
  Rank AnyRank() { return Rank(static_cast<int32_t>(Any() & 0x7fffffff)); }
  std::string Text();  // any bytes, not only UTF-8
  std::vector<uint8_t> Bytes();
  std::vector<Rank> Ranks();
  Duration Limit();
  std::vector<std::string> Texts();
  core::Ready Ready();
  core::PhaseOrder PhaseOrder();
  template <typename E>
  E Enum(E last) {
    return static_cast<E>(Below(static_cast<uint64_t>(last) + 1));
  }

  std::mt19937_64 random_;
};

}  // namespace kintsugi::wire
