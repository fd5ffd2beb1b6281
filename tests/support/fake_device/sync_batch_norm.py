"""What SyncBatchNorm asks of a device alone, for the fake one: the processor has no kernels of these. Importing it makes them."""
import torch


def _of_channels(values, like):
    return values.reshape(1, -1, *([1] * (like.dim() - 2)))


def _sum(tensor):
    return tensor.float().sum([d for d in range(tensor.dim()) if d != 1])


def _stats(tensor, eps):
    count = tensor.numel() // tensor.shape[1]
    mean = _sum(tensor) / count
    return mean, (_sum((tensor - _of_channels(mean, tensor)).square()) / count + eps).rsqrt()


def _gather(tensor, means, inverses, running_mean, running_var, momentum, eps, counts):
    counts = counts.reshape(-1, 1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    variance = ((inverses.pow(-2) - eps + (means - mean).square()) * counts).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean * momentum)
        running_var.mul_(1 - momentum).add_(variance * total / (total - 1) * momentum)
    return mean, (variance + eps).rsqrt()


def _elements(tensor, weight, bias, mean, inverse, eps):
    out = (tensor - _of_channels(mean, tensor)) * _of_channels(inverse, tensor)
    if weight is not None:
        out = out * _of_channels(weight, tensor) + _of_channels(bias, tensor)
    return out.to(tensor.dtype)


def _backward_sums(gradient, tensor, mean, inverse, weight, input_g, weight_g, bias_g):
    sums = _sum(gradient)
    weighted = _sum(gradient * (tensor - _of_channels(mean, tensor)))
    return sums, weighted, weighted * inverse, sums.clone()


def _backward_elements(gradient, tensor, mean, inverse, weight, sums, weighted, counts):
    total = counts.sum()
    scale = inverse if weight is None else inverse * weight
    centred = (tensor - _of_channels(mean, tensor)) * _of_channels(inverse.square() * weighted / total, tensor)
    return ((gradient - _of_channels(sums / total, tensor) - centred) * _of_channels(scale, tensor)).to(tensor.dtype)


for _name, _function in {"batch_norm_stats": _stats, "batch_norm_gather_stats_with_counts": _gather, "batch_norm_elemt": _elements,
                         "batch_norm_backward_reduce": _backward_sums, "batch_norm_backward_elemt": _backward_elements}.items():
    torch.library.impl(f"aten::{_name}", "PrivateUse1")(_function)
