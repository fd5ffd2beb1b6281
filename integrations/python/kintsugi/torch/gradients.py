"""The norm of all gradients, by which steps are refused (--veto)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor


def norm_of_gradients(parameters: Iterable[torch.Tensor]) -> float | None:
    """Of those that this rank holds, whole where they are parts of DTensors: all ranks of their meshes ask together. None: there are none."""
    plain: list[torch.Tensor] = []
    meshes: dict[object, list[torch.Tensor]] = {}
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor):
            meshes.setdefault((gradient.device_mesh, gradient.placements), []).append(gradient)
        elif gradient is not None:
            plain.append(gradient.coalesce().values() if gradient.is_sparse else gradient)
    norms = [float(torch.nn.utils.get_total_norm(plain))] if plain else []
    for gradients in meshes.values():
        norm = torch.nn.utils.get_total_norm(gradients)
        norms.append(float(norm.full_tensor() if isinstance(norm, DTensor) else norm))
    return math.hypot(*norms) if norms else None
