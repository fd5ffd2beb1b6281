"""Tensors in the state of an object, as bytes that are the same wherever they lie: torch's own have the address of their storage, and the number of
their device. Those on a device are made on the one that the process trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..pickled import Reducer
from .devices import SERVED
from .state import is_dense


def _reduce(tensor: torch.Tensor) -> Any:
    plain = tensor.detach()
    kind = tensor.device.type
    if kind not in ("cpu", *SERVED) or tensor.layout != torch.strided or tensor.is_quantized or tensor.__dict__ or (kind == "cpu" and not is_dense(plain)):
        return tensor.__reduce_ex__(4)  # type: ignore[no-untyped-call]
    if not is_dense(plain):
        plain = plain.contiguous()
    plain = plain.resolve_conj().resolve_neg()
    flat = plain.as_strided((plain.numel(),), (1,))
    data = flat.view(torch.uint8).cpu().numpy().tobytes()
    made = type(tensor) is torch.nn.Parameter, tensor.requires_grad, tensor.dtype, tuple(plain.shape), plain.stride(), data
    return _made, made if kind == "cpu" else (*made, kind)


def _made(parameter: bool, requires_grad: bool, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], data: bytes,
          kind: str = "cpu") -> torch.Tensor:  # fmt: skip
    tensor = torch.empty_strided(shape, stride, dtype=dtype, device=kind)
    if data:
        tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    return torch.nn.Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)


REDUCERS: Mapping[type, Reducer] = {torch.Tensor: _reduce, torch.nn.Parameter: _reduce}
