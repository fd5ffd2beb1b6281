#include "integrations/examples/byte_lm/model.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"

namespace kintsugi::byte_lm {
namespace {

Status SumOverGroup(Collectives& group, ComputeArray<float>& partial) {
  if (group.size() == 1) return Status::Ok();
  return group.AllReduceSum(partial.data(), partial.size());
}

// Gradient checks in double run on one tensor-parallel rank: groups move floats.
Status SumOverGroup(Collectives& group, ComputeArray<double>&) {
  KINTSUGI_CHECK(group.size() == 1, "byte_lm: the double-precision model runs on one tensor-parallel rank");
  return Status::Ok();
}

}  // namespace

template <typename Real>
Model<Real>::Model(const ModelConfig& config, const ParameterTable& table, int64_t batch, Compute<Real>& compute)
    : config_(config),
      table_(table),
      compute_(compute),
      shape_(LocalShapeOf(config, table.tp_size(), batch)),
      qkv_{shape_.positions, config.width, shape_.attention.QkvColumns()},
      projection_{shape_.positions, shape_.attention.OutColumns(), config.width},
      up_{shape_.positions, config.width, shape_.hidden},
      down_{shape_.positions, shape_.hidden, config.width},
      head_{shape_.positions, config.width, config.vocabulary},
      act_(compute, shape_, config.layers),
      split_(act_.tokens.size()) {}

template <typename Real>
Status Model<Real>::Forward(const Real* parameters, std::span<const uint8_t> windows, DropoutGenerator* dropout,
                            Collectives& tp, double* loss) {
  KINTSUGI_CHECK(tp.size() == table_.tp_size(), "byte_lm: the group is not the one the parameters were split for");
  if (config_.dropout == 0.0) dropout = nullptr;
  act_.masked = dropout != nullptr;
  SplitWindows(windows);
  compute_.EmbedForward(Embedding(), act_.inputs(), At(parameters, table_.token_embedding),
                        At(parameters, table_.position_embedding), act_.residual.data());
  if (dropout != nullptr) {
    FillMask(*dropout, act_.embedding_mask);
    compute_.Product(act_.residual.size(), act_.residual.data(), act_.embedding_mask.data(), act_.residual.data());
  }
  for (size_t i = 0; i < act_.blocks.size(); ++i) {
    KINTSUGI_RETURN_IF_ERROR(AttentionHalfForward(parameters, table_.blocks[i], act_.blocks[i], dropout, tp));
    KINTSUGI_RETURN_IF_ERROR(MlpHalfForward(parameters, table_.blocks[i], act_.blocks[i], dropout, tp));
  }
  NormForward(parameters, table_.final_norm_weight, table_.final_norm_bias, act_.final_norm);
  compute_.LinearForward(head_, act_.final_norm.output.data(), At(parameters, table_.head_weight), nullptr,
                         act_.logits.data());
  compute_.CrossEntropy(shape_.positions, shape_.vocabulary, act_.logits.data(), act_.targets(),
                        act_.logit_gradient.data(), loss);
  return Status::Ok();
}

template <typename Real>
Status Model<Real>::Backward(const Real* parameters, Collectives& tp, Real* gradients) {
  compute_.LinearWeightGradient(head_, act_.final_norm.output.data(), act_.logit_gradient.data(),
                                At(gradients, table_.head_weight), nullptr);
  compute_.LinearInputGradient(head_, act_.logit_gradient.data(), At(parameters, table_.head_weight),
                               act_.branch_gradient.data());
  compute_.Fill(act_.residual_gradient.size(), Real{0}, act_.residual_gradient.data());
  NormBackward(parameters, table_.final_norm_weight, table_.final_norm_bias, act_.final_norm,
               act_.branch_gradient.data(), gradients);
  for (size_t i = act_.blocks.size(); i-- > 0;) {
    KINTSUGI_RETURN_IF_ERROR(MlpHalfBackward(parameters, table_.blocks[i], act_.blocks[i], tp, gradients));
    KINTSUGI_RETURN_IF_ERROR(AttentionHalfBackward(parameters, table_.blocks[i], act_.blocks[i], tp, gradients));
  }
  if (act_.masked)
    compute_.Product(act_.residual_gradient.size(), act_.residual_gradient.data(), act_.embedding_mask.data(),
                     act_.residual_gradient.data());
  compute_.EmbedBackward(Embedding(), act_.inputs(), act_.residual_gradient.data(),
                         At(gradients, table_.token_embedding), At(gradients, table_.position_embedding));
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
    std::memcpy(split_.data() + window * context, bytes, context);
    std::memcpy(split_.data() + (batch + window) * context, bytes + 1, context);
  }
  compute_.Upload(act_.tokens.data(), split_.data(), split_.size());
}

template <typename Real>
Status Model<Real>::AttentionHalfForward(const Real* parameters, const BlockParameters& p, Block& a,
                                         DropoutGenerator* dropout, Collectives& tp) {
  NormForward(parameters, p.attention_norm_weight, p.attention_norm_bias, a.attention_norm);
  compute_.LinearForward(qkv_, a.attention_norm.output.data(), At(parameters, p.qkv_weight), At(parameters, p.qkv_bias),
                         a.qkv.data());
  compute_.AttentionForward(shape_.attention, a.qkv.data(), a.probabilities.data(), a.attended.data());
  compute_.LinearForward(projection_, a.attended.data(), At(parameters, p.projection_weight), nullptr,
                         act_.branch.data());
  return JoinBranch(At(parameters, p.projection_bias), a.attention_mask, dropout, tp);
}

template <typename Real>
Status Model<Real>::MlpHalfForward(const Real* parameters, const BlockParameters& p, Block& a,
                                   DropoutGenerator* dropout, Collectives& tp) {
  NormForward(parameters, p.mlp_norm_weight, p.mlp_norm_bias, a.mlp_norm);
  compute_.LinearForward(up_, a.mlp_norm.output.data(), At(parameters, p.up_weight), At(parameters, p.up_bias),
                         a.up.data());
  compute_.GeluForward(static_cast<int64_t>(a.up.size()), a.up.data(), a.gelu_tanh.data(), a.gelu.data());
  compute_.LinearForward(down_, a.gelu.data(), At(parameters, p.down_weight), nullptr, act_.branch.data());
  return JoinBranch(At(parameters, p.down_bias), a.mlp_mask, dropout, tp);
}

template <typename Real>
Status Model<Real>::MlpHalfBackward(const Real* parameters, const BlockParameters& p, Block& a, Collectives& tp,
                                    Real* gradients) {
  Real* branch = act_.branch_gradient.data();
  Real* wide = act_.wide_gradient.data();
  LeaveBranch(a.mlp_mask);
  compute_.LinearWeightGradient(down_, a.gelu.data(), branch, At(gradients, p.down_weight), At(gradients, p.down_bias));
  compute_.LinearInputGradient(down_, branch, At(parameters, p.down_weight), wide);
  compute_.GeluBackward(static_cast<int64_t>(a.up.size()), a.up.data(), a.gelu_tanh.data(), wide, wide);
  compute_.LinearWeightGradient(up_, a.mlp_norm.output.data(), wide, At(gradients, p.up_weight),
                                At(gradients, p.up_bias));
  compute_.LinearInputGradient(up_, wide, At(parameters, p.up_weight), branch);
  KINTSUGI_RETURN_IF_ERROR(SumOverGroup(tp, act_.branch_gradient));
  NormBackward(parameters, p.mlp_norm_weight, p.mlp_norm_bias, a.mlp_norm, branch, gradients);
  return Status::Ok();
}

template <typename Real>
Status Model<Real>::AttentionHalfBackward(const Real* parameters, const BlockParameters& p, Block& a, Collectives& tp,
                                          Real* gradients) {
  Real* branch = act_.branch_gradient.data();
  LeaveBranch(a.attention_mask);
  compute_.LinearWeightGradient(projection_, a.attended.data(), branch, At(gradients, p.projection_weight),
                                At(gradients, p.projection_bias));
  compute_.LinearInputGradient(projection_, branch, At(parameters, p.projection_weight), act_.attended_gradient.data());
  compute_.AttentionBackward(shape_.attention, a.qkv.data(), a.probabilities.data(), act_.attended_gradient.data(),
                             act_.score_scratch.data(), act_.qkv_gradient.data());
  compute_.LinearWeightGradient(qkv_, a.attention_norm.output.data(), act_.qkv_gradient.data(),
                                At(gradients, p.qkv_weight), At(gradients, p.qkv_bias));
  compute_.LinearInputGradient(qkv_, act_.qkv_gradient.data(), At(parameters, p.qkv_weight), branch);
  KINTSUGI_RETURN_IF_ERROR(SumOverGroup(tp, act_.branch_gradient));
  NormBackward(parameters, p.attention_norm_weight, p.attention_norm_bias, a.attention_norm, branch, gradients);
  return Status::Ok();
}

template <typename Real>
void Model<Real>::NormForward(const Real* parameters, size_t weight, size_t bias, NormBuffers<Real>& norm) {
  compute_.LayerNormForward(shape_.positions, shape_.width, static_cast<Real>(config_.layer_norm_epsilon),
                            act_.residual.data(), At(parameters, weight), At(parameters, bias), norm.memory(),
                            norm.output.data());
}

template <typename Real>
void Model<Real>::NormBackward(const Real* parameters, size_t weight, size_t bias, NormBuffers<Real>& norm,
                               const Real* dy, Real* gradients) {
  compute_.LayerNormBackward(shape_.positions, shape_.width, dy, At(parameters, weight), norm.memory(),
                             act_.residual_gradient.data(), At(gradients, weight), At(gradients, bias));
}

template <typename Real>
Status Model<Real>::JoinBranch(const Real* bias, ComputeArray<Real>& mask, DropoutGenerator* dropout, Collectives& tp) {
  KINTSUGI_RETURN_IF_ERROR(SumOverGroup(tp, act_.branch));
  compute_.AddBias(shape_.positions, shape_.width, bias, act_.branch.data());
  if (dropout == nullptr) {
    compute_.Add(act_.residual.size(), act_.branch.data(), act_.residual.data());
  } else {
    FillMask(*dropout, mask);
    compute_.AddProduct(act_.residual.size(), act_.branch.data(), mask.data(), act_.residual.data());
  }
  return Status::Ok();
}

template <typename Real>
void Model<Real>::FillMask(DropoutGenerator& dropout, ComputeArray<Real>& mask) {
  compute_.FillMask(dropout.Draw(config_.dropout, mask.size()), config_.dropout, mask.size(), mask.data());
}

template <typename Real>
void Model<Real>::LeaveBranch(const ComputeArray<Real>& mask) {
  if (act_.masked) {
    compute_.Product(act_.residual_gradient.size(), act_.residual_gradient.data(), mask.data(),
                     act_.branch_gradient.data());
  } else {
    compute_.Copy(act_.residual_gradient.size(), act_.residual_gradient.data(), act_.branch_gradient.data());
  }
}

template class Model<float>;
template class Model<double>;

}  // namespace kintsugi::byte_lm
