"""Tensors of torch as shards, for `run.reshard`: where they lie in larger ones, and copies on the host of what lies elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.distributed.tensor import DTensor

from .._errors import Error
from ..abi import Code
from ..reshard import Description, Shard, Staged, described, strided_target
from . import parallel, state


def described_tensor(key: str, shard: Shard, is_target: bool, staged: Staged) -> Description:
    """A DTensor knows its place; an ordinary tensor is whole, unless the Shard says otherwise."""
    tensor = shard.array
    if isinstance(tensor, DTensor):
        if tuple(shard.global_shape) != tuple(tensor.shape) or shard.offset is not None or shard.box is not None:
            raise Error(f"'{key}' is a DTensor, which knows its place: pass it without one", Code.INVALID_ARGUMENT)
        piece = parallel.piece_of(key, tensor, ())
        shard = replace(shard, global_shape=piece.global_shape, offset=piece.offset)
    local = parallel.local_of(tensor).detach()
    if local.layout != torch.strided or local.is_meta or (local.numel() > 0 and local.device.type == "cpu" and local.data_ptr() == 0):
        raise Error(f"'{key}' is {'on the meta device' if local.is_meta else 'no dense tensor'}: only what has elements in memory of its own is "
                    "resharded", Code.INVALID_ARGUMENT)  # fmt: skip
    memory = _on_host(key, local, is_target, staged)
    if is_target:
        staged.add(tensor, lambda: increment_version(tensor))  # for autograd it was changed in place
    return described(key, shard, state.dtype_name(memory), memory.shape, memory.data_ptr() if memory.numel() else 0)


def _on_host(key: str, local: torch.Tensor, is_target: bool, staged: Staged) -> torch.Tensor:
    """Where its elements are, or are to be, row-major."""
    why = ""
    if local.device.type != "cpu":
        why = f"is on {local.device}"
    elif not local.is_contiguous():
        why = f"is not contiguous (strides {tuple(local.stride())})"
    elif local.is_conj() or local.is_neg():
        why = "is a conjugated or negated view"
    if not why:
        return local
    if is_target and local.device.type == "cpu":
        raise strided_target(key, why)
    staged.check(key, why)
    copy: Any = torch.empty(local.shape, dtype=local.dtype, device="cpu")
    copy.copy_(local)
    staged.add(copy, (lambda: local.copy_(copy)) if is_target else None)
    return copy  # type: ignore[no-any-return]
