#include "integrations/examples/byte_lm/adam_shard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "integrations/examples/byte_lm/aligned_buffer.h"
#include "runtime/base/check.h"

namespace kintsugi::byte_lm {
namespace {

AdamConstants<float> ConstantsOf(const TrainConfig& c, const UpdateScalars& s, bool decays) {
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

}  // namespace

AdamShard::AdamShard(const TrainConfig& config, const ParameterTable& table, int shard, OptimizerState state,
                     Compute<float>& compute)
    : config_(config), table_(table), range_(table.ShardRange(shard)), state_(state), compute_(compute) {
  for (const float* array : {state_.master, state_.exp_avg, state_.exp_avg_sq}) {
    KINTSUGI_CHECK(array != nullptr && reinterpret_cast<uintptr_t>(array) % kAlignmentBytes == 0,
                   "byte_lm: optimizer state must lie on a 64-byte boundary");
  }
  CutPieces();
  sums_ = ComputeArray<double>(compute_, pieces_.size());
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
    compute_.Copy(piece.count, parameters + piece.flat_begin, state_.master + piece.state_begin);
    compute_.Fill(piece.count, 0.0f, state_.exp_avg + piece.state_begin);
    compute_.Fill(piece.count, 0.0f, state_.exp_avg_sq + piece.state_begin);
  }
}

double AdamShard::SumOfSquares(const float* gradients) const {
  const auto counts = [this](const UpdatePiece& piece) {
    return !table_[piece.parameter].replicated || table_.tp_rank() == 0;
  };
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (counts(pieces_[i]))
      compute_.SumOfSquares(pieces_[i].count, gradients + pieces_[i].flat_begin, sums_.data() + i);
  std::vector<double> sums(pieces_.size());
  if (!compute_.Download(sums.data(), sums_.data(), sums.size() * sizeof(double)).ok())
    return std::numeric_limits<double>::quiet_NaN();
  double total = 0;
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (counts(pieces_[i])) total += sums[i];
  return total;
}

void AdamShard::Update(size_t index, const UpdateScalars& scalars, const float* gradients) {
  const UpdatePiece& piece = pieces_[index];
  const ParameterKind kind = table_[piece.parameter].kind;
  const bool decays =
      kind == ParameterKind::kMatrix || kind == ParameterKind::kResidualMatrix || kind == ParameterKind::kHead;
  compute_.AdamUpdate(ConstantsOf(config_, scalars, decays), piece.count, gradients + piece.flat_begin,
                      state_.master + piece.state_begin, state_.exp_avg + piece.state_begin,
                      state_.exp_avg_sq + piece.state_begin);
}

double ClipScale(double norm, double clip) {
  if (clip == 0.0 || norm <= clip) return 1.0;
  return clip / norm;
}

}  // namespace kintsugi::byte_lm
