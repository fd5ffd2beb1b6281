"""Optimizers that deal their state out among the ranks (ZeRO-1): kintsugi's ReplicaOptimizer, and torch's own ZeroRedundancyOptimizer.

Each updates this rank's parameters alone, by an optimizer within; then the ranks give each other what they have updated. That is the run's to do, once
the update is committed.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from .._errors import Error
from ..abi import Code
from .replica_optimizer import ReplicaOptimizer

_TORCHS = "ZeroRedundancyOptimizer"


class Sharing(Protocol):
    local: Optimizer  # whose step is the update
    ranks: list[int]  # among which state is dealt out

    def owners(self, parameter: torch.Tensor, /) -> tuple[int, ...] | None:
        """Ranks that update it; None: it is none of this optimizer's."""

    def let_run_gather(self) -> None:
        """step() is the update alone from now on."""

    def gather(self) -> None:
        """Every parameter as its owners have it; may be repeated."""

    def share_settings(self) -> None:
        """With the optimizer within: a scheduler's learning rate."""

    def take_settings(self) -> None: ...


class ZeroParts:
    """torch's ZeroRedundancyOptimizer: each part has one owner."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.local: Optimizer = optimizer.optim
        self.ranks = dist.get_process_group_ranks(optimizer.process_group)

    def owners(self, parameter: torch.Tensor) -> tuple[int, ...] | None:
        index = self._optimizer._param_to_rank.get(parameter)
        return None if index is None else (self.ranks[index],)

    def let_run_gather(self) -> None:
        self._optimizer._sync_params = lambda: None

    def gather(self) -> None:
        type(self._optimizer)._sync_params(self._optimizer)

    def share_settings(self) -> None:
        self._optimizer._sync_param_groups(self._optimizer.param_groups, self.local.param_groups)

    def take_settings(self) -> None:
        self._optimizer._sync_param_groups(self.local.param_groups, self._optimizer.param_groups)


def sharing_of(optimizer: Optimizer) -> Sharing | None:
    """None: each rank has all of its state."""
    if isinstance(optimizer, ReplicaOptimizer):
        return optimizer
    return ZeroParts(optimizer) if type(optimizer).__name__ == _TORCHS else None


def refuse_other(name: str, thing: Any) -> None:
    """What is like torch's, and does something else in its step."""
    if all(kind.__name__ != _TORCHS for kind in type(thing).__mro__):
        return
    why = ""
    if type(thing).__name__ != _TORCHS:
        why = f"a {type(thing).__name__}, a {_TORCHS} with a step of which nobody knows"
    elif thing._overlap_with_ddp:
        why = f"a {_TORCHS} that updates within the backward pass (overlap_with_ddp), where no gate is"
    if why:
        raise Error(f"'{name}' is {why}: use torch's own, without overlap_with_ddp, or kintsugi.torch.ReplicaOptimizer(model.parameters(), "
                    f"{thing._optim_constructor.__name__}, copies=2, ...)", Code.INVALID_ARGUMENT)  # fmt: skip
