#include <ATen/ATen.h>
#include <nccl_inner.h>

#include <algorithm>

// Sums in the order of the ranks: each rank is sent its part of what all others have, adds the parts up itself, and sends the total on. The bytes are a
// ring's; the bits do not depend on topology, channels or algorithm. Half types are added up in single precision.
namespace kintsugi::torch_door {
namespace {

using c10d::ReduceOp;

// Of what each rank gave, a row each.
at::Tensor TotalOf(const at::Tensor& rows, const ReduceOp& op) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = rows.scalar_type();
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  const auto row = [&](int64_t rank) {
    const at::Tensor one = rows[rank].to(is_half ? at::kFloat : type);
    if (op.op_ != ReduceOp::PREMUL_SUM) return one;
    const auto& scale = *static_cast<const ScaleOfSum*>(op.supplement_.get());
    return scale.tensor_factor.defined() ? one.mul(scale.tensor_factor.to(one.scalar_type()))
                                         : one.mul(scale.double_factor);
  };
  at::Tensor total = row(0).clone();
  for (int64_t rank = 1; rank < rows.size(0); ++rank)
    op.op_ == ReduceOp::PRODUCT ? total.mul_(row(rank)) : total.add_(row(rank));
  if (op.op_ == ReduceOp::AVG) total.div_(rows.size(0));
  return total.to(type);
}

}  // namespace

// Two ranks have one order: a + b is b + a.
bool NcclCollectives::IsOrdered(const ReduceOp& op, const Tensors& tensors) const {
  const bool adds = op.op_ == ReduceOp::SUM || op.op_ == ReduceOp::AVG;
  const auto has_order = [&](const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
      case at::kHalf:
      case at::kBFloat16:
      case at::kFloat:
      case at::kDouble:
        return adds || op.op_ == ReduceOp::PREMUL_SUM || op.op_ == ReduceOp::PRODUCT;
      case at::kComplexFloat:
      case at::kComplexDouble:
        return adds;
      default:
        return false;
    }
  };
  return place_.ordered && getSize() > 2 && !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), has_order);
}

NcclCollectives::Lists NcclCollectives::PartsForAll(const Tensors& tensors) const {
  Lists parts;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.is_contiguous(), "takes contiguous tensors, and got one of sizes ", tensor.sizes(),
                " and strides ", tensor.strides());
    const int64_t count = tensor.numel(), each = (count + getSize() - 1) / getSize();
    const at::Tensor flat = tensor.view(-1);
    Tensors of_ranks;
    for (int rank = 0; rank < getSize(); ++rank) {
      const int64_t begin = std::min(count, rank * each), end = std::min(count, begin + each);
      of_ranks.push_back(flat.narrow(0, begin, end - begin));
    }
    parts.push_back(std::move(of_ranks));
  }
  return parts;
}

NcclCollectives::WorkPtr NcclCollectives::LaunchOrdered(Launched launched, Lists parts, Tensors totals,
                                                        const ReduceOp& op, std::optional<int> root) {
  if (op.op_ == ReduceOp::PREMUL_SUM)
    for (const Tensors& of_ranks : parts) ScaleOf(op, of_ranks[0].scalar_type());
  const auto rows = std::make_shared<Tensors>();  // of each tensor what the ranks gave of this one's part
  const auto own = std::make_shared<Tensors>();
  const auto me = static_cast<size_t>(getRank());
  launched.before = [this, parts, rows, me] {
    for (const Tensors& of_ranks : parts)
      rows->push_back(at::empty({getSize(), of_ranks[me].numel()}, of_ranks[me].options()));
  };
  launched.issue = [this, parts, rows](const Lane& lane, NcclStream stream) {
    for (size_t i = 0; i < parts.size(); ++i)
      for (int rank = 0; rank < getSize(); ++rank) {
        const at::Tensor& part = parts[i][static_cast<size_t>(rank)];
        if (part.nbytes() > 0) SendBytes(part, rank, lane, stream);
        if ((*rows)[i].nbytes() > 0) ReceiveBytes((*rows)[i][rank], rank, lane, stream);
      }
  };
  launched.after = [rows, own, totals, op] {
    for (size_t i = 0; i < rows->size(); ++i) {
      own->push_back(TotalOf((*rows)[i], op));
      if (!totals.empty()) totals[i].view(-1).copy_(own->back());
    }
  };
  if (totals.empty())
    launched.issue_behind = [this, parts, own, root](const Lane& lane, NcclStream stream) {
      for (size_t i = 0; i < parts.size(); ++i)
        for (int rank = 0; rank < getSize(); ++rank) {
          const at::Tensor& part = parts[i][static_cast<size_t>(rank)];
          if ((*own)[i].nbytes() > 0 && root.value_or(rank) == rank) SendBytes((*own)[i], rank, lane, stream);
          if (part.nbytes() > 0 && root.value_or(getRank()) == getRank()) ReceiveBytes(part, rank, lane, stream);
        }
    };
  return Launch(std::move(launched));
}

}  // namespace kintsugi::torch_door
