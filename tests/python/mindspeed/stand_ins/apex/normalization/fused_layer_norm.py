"""Stands for the fused layer norm's kernel."""
import torch


class FusedLayerNormAffineFunction:
    @staticmethod
    def forward(_ctx, given, weight, bias, shape, eps):
        return torch.nn.functional.layer_norm(given, shape, weight, bias, eps)

    @classmethod
    def apply(cls, *given):
        return cls.forward(None, *given)
