#include "integrations/examples/byte_lm/model.h"

#include <algorithm>
#include <cstring>

#include "integrations/examples/byte_lm/loss.h"
#include "integrations/examples/byte_lm/matrix.h"
#include "runtime/base/check.h"

namespace kintsugi::byte_lm {
namespace {

Status SumOverGroup(Collectives& group, AlignedBuffer<float>& partial) {
  if (group.size() == 1) return Status::Ok();
  return group.AllReduceSum(partial.data(), partial.size());
}

// Gradient checks in double run on one tensor-parallel rank: groups move floats.
Status SumOverGroup(Collectives& group, AlignedBuffer<double>&) {
  KINTSUGI_CHECK(group.size() == 1, "byte_lm: the double-precision model runs on one tensor-parallel rank");
  return Status::Ok();
}

template <typename Real>
Vector<Real> All(AlignedBuffer<Real>& buffer) {
  return Vector<Real>(buffer.data(), static_cast<int64_t>(buffer.size()));
}

template <typename Real>
ConstVector<Real> All(const AlignedBuffer<Real>& buffer) {
  return ConstVector<Real>(buffer.data(), static_cast<int64_t>(buffer.size()));
}

}  // namespace

template <typename Real>
Model<Real>::Model(const ModelConfig& config, const ParameterTable& table, int64_t batch)
    : config_(config), table_(table), shape_(LocalShapeOf(config, table.tp_size(), batch)),
      qkv_{shape_.positions, config.width, shape_.attention.QkvColumns()},
      projection_{shape_.positions, shape_.attention.OutColumns(), config.width},
      up_{shape_.positions, config.width, shape_.hidden}, down_{shape_.positions, shape_.hidden, config.width},
      head_{shape_.positions, config.width, config.vocabulary}, act_(shape_, config.layers) {
  PinBlocking();
}

template <typename Real>
Status Model<Real>::Forward(const Real* parameters, std::span<const uint8_t> windows, DropoutGenerator* dropout,
                            Collectives& tp, double* loss) {
  KINTSUGI_CHECK(tp.size() == table_.tp_size(), "byte_lm: the group is not the one the parameters were split for");
  if (config_.dropout == 0.0) dropout = nullptr;
  act_.masked = dropout != nullptr;
  SplitWindows(windows);
  EmbedForward(parameters);
  if (dropout != nullptr) {
    dropout->FillMask(config_.dropout, act_.residual.size(), act_.embedding_mask.data());
    All(act_.residual) *= All(act_.embedding_mask);
  }
  for (size_t i = 0; i < act_.blocks.size(); ++i) {
    KINTSUGI_RETURN_IF_ERROR(AttentionHalfForward(parameters, table_.blocks[i], act_.blocks[i], dropout, tp));
    KINTSUGI_RETURN_IF_ERROR(MlpHalfForward(parameters, table_.blocks[i], act_.blocks[i], dropout, tp));
  }
  NormForward(parameters, table_.final_norm_weight, table_.final_norm_bias, act_.final_norm);
  LinearForward<Real>(head_, act_.final_norm.output.data(), At(parameters, table_.head_weight), nullptr,
                      act_.logits.data());
  *loss = CrossEntropy<Real>(shape_.vocabulary, act_.logits.data(), {act_.targets.data(), act_.targets.size()},
                             act_.logit_gradient.data());
  return Status::Ok();
}

template <typename Real>
Status Model<Real>::Backward(const Real* parameters, Collectives& tp, Real* gradients) {
  LinearWeightGradient<Real>(head_, act_.final_norm.output.data(), act_.logit_gradient.data(),
                             At(gradients, table_.head_weight), nullptr);
  LinearInputGradient<Real>(head_, act_.logit_gradient.data(), At(parameters, table_.head_weight),
                            act_.branch_gradient.data());
  All(act_.residual_gradient).setZero();
  NormBackward(parameters, table_.final_norm_weight, table_.final_norm_bias, act_.final_norm,
               act_.branch_gradient.data(), gradients);
  for (size_t i = act_.blocks.size(); i-- > 0;) {
    KINTSUGI_RETURN_IF_ERROR(MlpHalfBackward(parameters, table_.blocks[i], act_.blocks[i], tp, gradients));
    KINTSUGI_RETURN_IF_ERROR(AttentionHalfBackward(parameters, table_.blocks[i], act_.blocks[i], tp, gradients));
  }
  if (act_.masked) All(act_.residual_gradient) *= All(act_.embedding_mask);
  EmbedBackward(gradients);
  return Status::Ok();
}

template <typename Real>
std::span<const Real> Model<Real>::Logits(int64_t window, int64_t position) const {
  const size_t vocabulary = static_cast<size_t>(shape_.vocabulary);
  return {act_.logits.data() + static_cast<size_t>(window * shape_.context + position) * vocabulary, vocabulary};
}

template <typename Real>
void Model<Real>::SplitWindows(std::span<const uint8_t> windows) {
  const size_t context = static_cast<size_t>(shape_.context), batch = static_cast<size_t>(shape_.batch);
  KINTSUGI_CHECK(windows.size() == batch * (context + 1), "byte_lm: a batch of another size than the model's");
  for (size_t window = 0; window < batch; ++window) {
    const uint8_t* bytes = windows.data() + window * (context + 1);
    std::memcpy(act_.inputs.data() + window * context, bytes, context);
    std::memcpy(act_.targets.data() + window * context, bytes + 1, context);
  }
}

template <typename Real>
void Model<Real>::EmbedForward(const Real* parameters) {
  const ConstView<Real> token(At(parameters, table_.token_embedding), shape_.vocabulary, shape_.width);
  const ConstView<Real> position(At(parameters, table_.position_embedding), shape_.context, shape_.width);
  View<Real> out(act_.residual.data(), shape_.positions, shape_.width);
  for (int64_t row = 0; row < shape_.positions; ++row) {
    out.row(row) = token.row(act_.inputs[static_cast<size_t>(row)]) + position.row(row % shape_.context);
  }
}

template <typename Real>
void Model<Real>::EmbedBackward(Real* gradients) {
  View<Real> token(At(gradients, table_.token_embedding), shape_.vocabulary, shape_.width);
  View<Real> position(At(gradients, table_.position_embedding), shape_.context, shape_.width);
  const ConstView<Real> out(act_.residual_gradient.data(), shape_.positions, shape_.width);
  token.setZero();
  position.setZero();
  for (int64_t row = 0; row < shape_.positions; ++row) {
    token.row(act_.inputs[static_cast<size_t>(row)]) += out.row(row);
    position.row(row % shape_.context) += out.row(row);
  }
}

template <typename Real>
Status Model<Real>::AttentionHalfForward(const Real* parameters, const BlockParameters& p, Block& a,
                                         DropoutGenerator* dropout, Collectives& tp) {
  NormForward(parameters, p.attention_norm_weight, p.attention_norm_bias, a.attention_norm);
  LinearForward(qkv_, a.attention_norm.output.data(), At(parameters, p.qkv_weight), At(parameters, p.qkv_bias),
                a.qkv.data());
  AttentionForward(shape_.attention, a.qkv.data(), a.probabilities.data(), a.attended.data());
  LinearForward<Real>(projection_, a.attended.data(), At(parameters, p.projection_weight), nullptr,
                      act_.branch.data());
  return JoinBranch(At(parameters, p.projection_bias), a.attention_mask, dropout, tp);
}

template <typename Real>
Status Model<Real>::MlpHalfForward(const Real* parameters, const BlockParameters& p, Block& a,
                                   DropoutGenerator* dropout, Collectives& tp) {
  NormForward(parameters, p.mlp_norm_weight, p.mlp_norm_bias, a.mlp_norm);
  LinearForward(up_, a.mlp_norm.output.data(), At(parameters, p.up_weight), At(parameters, p.up_bias), a.up.data());
  GeluForward(static_cast<int64_t>(a.up.size()), a.up.data(), a.gelu_tanh.data(), a.gelu.data());
  LinearForward<Real>(down_, a.gelu.data(), At(parameters, p.down_weight), nullptr, act_.branch.data());
  return JoinBranch(At(parameters, p.down_bias), a.mlp_mask, dropout, tp);
}

template <typename Real>
Status Model<Real>::MlpHalfBackward(const Real* parameters, const BlockParameters& p, Block& a, Collectives& tp,
                                    Real* gradients) {
  Real* branch = act_.branch_gradient.data();
  Real* wide = act_.wide_gradient.data();
  LeaveBranch(a.mlp_mask);
  LinearWeightGradient(down_, a.gelu.data(), branch, At(gradients, p.down_weight), At(gradients, p.down_bias));
  LinearInputGradient(down_, branch, At(parameters, p.down_weight), wide);
  GeluBackward(static_cast<int64_t>(a.up.size()), a.up.data(), a.gelu_tanh.data(), wide, wide);
  LinearWeightGradient(up_, a.mlp_norm.output.data(), wide, At(gradients, p.up_weight), At(gradients, p.up_bias));
  LinearInputGradient(up_, wide, At(parameters, p.up_weight), branch);
  KINTSUGI_RETURN_IF_ERROR(SumOverGroup(tp, act_.branch_gradient));
  NormBackward(parameters, p.mlp_norm_weight, p.mlp_norm_bias, a.mlp_norm, branch, gradients);
  return Status::Ok();
}

template <typename Real>
Status Model<Real>::AttentionHalfBackward(const Real* parameters, const BlockParameters& p, Block& a, Collectives& tp,
                                          Real* gradients) {
  Real* branch = act_.branch_gradient.data();
  LeaveBranch(a.attention_mask);
  LinearWeightGradient(projection_, a.attended.data(), branch, At(gradients, p.projection_weight),
                       At(gradients, p.projection_bias));
  LinearInputGradient(projection_, branch, At(parameters, p.projection_weight), act_.attended_gradient.data());
  AttentionBackward(shape_.attention, a.qkv.data(), a.probabilities.data(), act_.attended_gradient.data(),
                    act_.score_scratch.data(), act_.qkv_gradient.data());
  LinearWeightGradient(qkv_, a.attention_norm.output.data(), act_.qkv_gradient.data(), At(gradients, p.qkv_weight),
                       At(gradients, p.qkv_bias));
  LinearInputGradient(qkv_, act_.qkv_gradient.data(), At(parameters, p.qkv_weight), branch);
  KINTSUGI_RETURN_IF_ERROR(SumOverGroup(tp, act_.branch_gradient));
  NormBackward(parameters, p.attention_norm_weight, p.attention_norm_bias, a.attention_norm, branch, gradients);
  return Status::Ok();
}

template <typename Real>
void Model<Real>::NormForward(const Real* parameters, size_t weight, size_t bias, NormBuffers<Real>& norm) {
  LayerNormForward(shape_.positions, shape_.width, static_cast<Real>(config_.layer_norm_epsilon), act_.residual.data(),
                   At(parameters, weight), At(parameters, bias), norm.memory(), norm.output.data());
}

template <typename Real>
void Model<Real>::NormBackward(const Real* parameters, size_t weight, size_t bias, NormBuffers<Real>& norm,
                               const Real* dy, Real* gradients) {
  LayerNormBackward(shape_.positions, shape_.width, dy, At(parameters, weight), norm.memory(),
                    act_.residual_gradient.data(), At(gradients, weight), At(gradients, bias));
}

template <typename Real>
Status Model<Real>::JoinBranch(const Real* bias, AlignedBuffer<Real>& mask, DropoutGenerator* dropout,
                               Collectives& tp) {
  KINTSUGI_RETURN_IF_ERROR(SumOverGroup(tp, act_.branch));
  AddBias(shape_.positions, shape_.width, bias, act_.branch.data());
  if (dropout == nullptr) {
    All(act_.residual) += All(act_.branch);
  } else {
    dropout->FillMask(config_.dropout, mask.size(), mask.data());
    All(act_.residual) += All(act_.branch) * All(mask);
  }
  return Status::Ok();
}

template <typename Real>
void Model<Real>::LeaveBranch(const AlignedBuffer<Real>& mask) {
  if (act_.masked) {
    All(act_.branch_gradient) = All(act_.residual_gradient) * All(mask);
  } else {
    All(act_.branch_gradient) = All(act_.residual_gradient);
  }
}

template class Model<float>;
template class Model<double>;

}  // namespace kintsugi::byte_lm
