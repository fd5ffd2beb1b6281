"""Batches that were handed out and may be wanted again, as they were: a step may have changed its own.

Containers are copied, tensors are not: their version counters say whether somebody wrote into them. What is neither is copied.
"""

from __future__ import annotations

import copy
from typing import Any

import torch


class KeptBatch:
    def __init__(self, batch: Any) -> None:
        self._tensors: list[tuple[torch.Tensor, int]] = []
        try:
            self._batch = self._apart(batch)
            self._whole = True
        except Exception:  # what cannot be copied is fetched again
            self._batch, self._whole = None, False

    def again(self) -> Any:
        """None where it is not what it was. Each call gives containers of its own."""
        if not self._whole or any(tensor._version != version for tensor, version in self._tensors):
            return None
        return self._apart(self._batch)

    def is_memory_of(self, batch: Any) -> bool:
        """Whether some of a batch lies where this lies."""
        places = {tensor.untyped_storage().data_ptr() for tensor, _ in self._tensors if tensor.numel()}
        return any(tensor.untyped_storage().data_ptr() in places for tensor, _ in KeptBatch(batch)._tensors if tensor.numel())

    def _apart(self, part: Any) -> Any:
        kind = type(part)
        if part is None or kind in (int, float, bool, str, bytes):
            return part
        if kind is torch.Tensor and part.layout is torch.strided and not part.requires_grad and not part.is_inference():
            alias = part.detach()  # has the version counter in common, and no .grad
            self._tensors.append((alias, alias._version))
            return alias
        if kind is dict:
            return {key: self._apart(value) for key, value in part.items()}
        if kind in (list, tuple):
            return kind(self._apart(value) for value in part)
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return kind(*(self._apart(value) for value in part))
        return copy.deepcopy(part)
