#include "integrations/examples/byte_lm/adam_shard.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "integrations/examples/byte_lm/aligned_buffer.h"
#include "runtime/base/check.h"

namespace kintsugi::byte_lm {
namespace {

// The constants of one update of one parameter, rounded to float once.
struct AdamConstants {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_correction1, inverse_correction2;
  float epsilon, learning_rate, decay;
};

AdamConstants ConstantsOf(const TrainConfig& c, const UpdateScalars& s, bool decays) {
  const double step = static_cast<double>(s.step);
  return {static_cast<float>(s.gradient_scale),
          static_cast<float>(c.beta1),
          static_cast<float>(1.0 - c.beta1),
          static_cast<float>(c.beta2),
          static_cast<float>(1.0 - c.beta2),
          static_cast<float>(1.0 / (1.0 - std::pow(c.beta1, step))),
          static_cast<float>(1.0 / (1.0 - std::pow(c.beta2, step))),
          static_cast<float>(c.epsilon),
          static_cast<float>(s.learning_rate),
          decays ? static_cast<float>(s.learning_rate * c.weight_decay) : 0.0f};
}

void AdamLoop(const AdamConstants& k, size_t count, const float* __restrict gradient, float* __restrict master,
              float* __restrict exp_avg, float* __restrict exp_avg_sq) {
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * k.gradient_scale;
    const float mean = k.beta1 * exp_avg[i] + k.one_minus_beta1 * g;
    const float square = k.beta2 * exp_avg_sq[i] + k.one_minus_beta2 * g * g;
    const float direction = mean * k.inverse_correction1 / (std::sqrt(square * k.inverse_correction2) + k.epsilon);
    exp_avg[i] = mean;
    exp_avg_sq[i] = square;
    master[i] -= k.learning_rate * direction + k.decay * master[i];
  }
}

// Eight running sums: one alone would make every addition wait for the one before it.
double SumOfSquaresOf(const float* values, size_t count) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < count; ++i) sums[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace

AdamShard::AdamShard(const TrainConfig& config, const ParameterTable& table, int shard, OptimizerState state)
    : config_(config), table_(table), range_(table.ShardRange(shard)), state_(state) {
  for (const float* array : {state_.master, state_.exp_avg, state_.exp_avg_sq}) {
    KINTSUGI_CHECK(array != nullptr && reinterpret_cast<uintptr_t>(array) % kAlignmentBytes == 0,
                   "byte_lm: optimizer state must lie on a 64-byte boundary");
  }
  CutPieces();
}

void AdamShard::CutPieces() {
  size_t met = 0;
  const auto part_of = [this](const Parameter& p) {
    return FlatSpan{std::max(p.offset, range_.begin), std::max(range_.begin, std::min(p.offset + p.count, range_.end))};
  };
  for (const Parameter& p : table_.parameters()) met += part_of(p).begin < part_of(p).end;
  if (met == 0) return;
  const size_t cuts = (kPiecesMin + met - 1) / met;
  for (size_t i = 0; i < table_.parameters().size(); ++i) {
    const FlatSpan part = part_of(table_[i]);
    if (part.begin < part.end) AddPieces(i, part.begin, part.end, cuts);
  }
}

void AdamShard::AddPieces(size_t parameter, size_t begin, size_t end, size_t piece_count_max) {
  constexpr size_t kAlignmentElements = kAlignmentBytes / sizeof(float);
  const size_t even = (end - begin + piece_count_max - 1) / piece_count_max;
  const size_t length = (even + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
  for (size_t at = begin; at < end; at += length) {
    pieces_.push_back({parameter, at, at - range_.begin, at - table_[parameter].offset, std::min(length, end - at)});
  }
}

void AdamShard::Initialize(const float* parameters) {
  for (const UpdatePiece& piece : pieces_) {
    std::memcpy(state_.master + piece.state_begin, parameters + piece.flat_begin, piece.count * sizeof(float));
    std::fill_n(state_.exp_avg + piece.state_begin, piece.count, 0.0f);
    std::fill_n(state_.exp_avg_sq + piece.state_begin, piece.count, 0.0f);
  }
}

double AdamShard::SumOfSquares(const float* gradients) const {
  double total = 0;
  for (const UpdatePiece& piece : pieces_) {
    if (table_[piece.parameter].replicated && table_.tp_rank() != 0) continue;
    total += SumOfSquaresOf(gradients + piece.flat_begin, piece.count);
  }
  return total;
}

void AdamShard::Update(size_t index, const UpdateScalars& scalars, const float* gradients) {
  const UpdatePiece& piece = pieces_[index];
  const ParameterKind kind = table_[piece.parameter].kind;
  const bool decays =
      kind == ParameterKind::kMatrix || kind == ParameterKind::kResidualMatrix || kind == ParameterKind::kHead;
  AdamLoop(ConstantsOf(config_, scalars, decays), piece.count, gradients + piece.flat_begin,
           state_.master + piece.state_begin, state_.exp_avg + piece.state_begin,
           state_.exp_avg_sq + piece.state_begin);
}

double ClipScale(double norm, double clip) {
  if (clip == 0.0 || norm <= clip) return 1.0;
  return clip / norm;
}

}  // namespace kintsugi::byte_lm
