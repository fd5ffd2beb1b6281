"""ZeRO-1 with copies: each rank keeps the optimizer's state of a part of the parameters, and `copies` ranks or more keep the same part.

An update is taken apart: what comes before step() (gradients, their norm, clipping) is done on whole gradients by every rank; behind
the gate each rank updates its own part alone; after the commit the parts are gathered, which may be done again as often as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from .._errors import Error
from ..abi import Code

# For each type of element: per part, the parameters in the order in which all ranks have them.
_Parts = dict[torch.dtype, list[list[torch.Tensor]]]


class ReplicaOptimizer(Optimizer):
    """`ReplicaOptimizer(model.parameters(), torch.optim.AdamW, copies=2, lr=1e-3)`, over ranks whose parameters and gradients are
    alike (DDP). The optimizer within may be any whose step() is local arithmetic on each parameter. Whole parameters are dealt out,
    the largest first. Made on all ranks of the group, as it makes groups of its own."""

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: Callable[..., Optimizer],
        *,
        copies: int = 2,
        group: dist.ProcessGroup | None = None,
        **settings: Any,
    ) -> None:
        self._ready = False
        super().__init__(params, settings)
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        if not 1 <= copies <= len(ranks):
            raise Error(f"ReplicaOptimizer: {len(ranks)} ranks cannot keep {copies} copies of each part: copies is at least 1, and at most {len(ranks)}",
                        Code.INVALID_ARGUMENT)  # fmt: skip
        self.part_count = len(ranks) // copies
        self.part = ranks.index(dist.get_rank()) % self.part_count
        self.ranks = ranks
        self._rows = self._make_rows() if self.part_count > 1 else []
        self._owner = _deal_out([p for g in self.param_groups for p in g["params"]], self.part_count)
        self.local = optimizer_class(
            [{**_settings_of(g), "params": [p for p in g["params"] if self._owner[p] == self.part]} for g in self.param_groups],
            **settings,
        )
        self.take_settings()  # defaults that were not named
        self.state = self.local.state
        self._gathers_itself = True
        self._ready = True

    def _make_rows(self) -> list[tuple[Any, list[int]]]:
        """Groups to gather in, those of this rank, and which part each of their ranks has: every part once. What the parts do not divide begins the
        last one anew from its end, so that some are in two."""
        count, ranks = self.part_count, self.ranks
        rows = [ranks[first : first + count] for first in range(0, len(ranks) - count + 1, count)]
        if len(ranks) % count:
            rows.append(ranks[-count:])
        groups: list[Any] = [dist.new_group(row) for row in rows]
        return [(group, [ranks.index(rank) % count for rank in row]) for row, group in zip(rows, groups) if dist.get_rank() in row]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if getattr(self, "_ready", False):
            raise Error("ReplicaOptimizer: parameters are dealt out when it is made; none can be added later", Code.INVALID_ARGUMENT)
        super().add_param_group(param_group)

    def owners(self, parameter: torch.Tensor) -> tuple[int, ...] | None:
        """Ranks that update it; None: it is none of this optimizer's."""
        part = self._owner.get(parameter)
        return None if part is None else tuple(sorted(self.ranks[part :: self.part_count]))

    def step(self, closure: Any = None) -> Any:
        if closure is not None:
            raise Error("optimizer.step(closure) computes within the update: call backward before step()", Code.INVALID_ARGUMENT)
        self.share_settings()
        self.local.step()
        self.take_settings()
        if self._gathers_itself:
            self.gather()

    def let_run_gather(self) -> None:
        """Once the update is committed."""
        self._gathers_itself = False

    @torch.no_grad()
    def gather(self) -> None:
        """Every parameter as its owners have it; may be repeated."""
        for group, order in self._rows:
            for parts in self._by_type().values():
                self._gather_row(group, order, parts)

    def _gather_row(self, group: Any, order: list[int], parts: list[list[torch.Tensor]]) -> None:
        longest = max(sum(p.numel() for p in part) for part in parts)
        own = parts[self.part][0] if parts[self.part] else next(p for part in parts for p in part)
        mine = own.new_zeros(longest)
        at = 0
        for parameter in parts[self.part]:
            mine[at : at + parameter.numel()].copy_(parameter.reshape(-1))
            at += parameter.numel()
        every = mine.new_empty(longest * self.part_count)
        dist.all_gather_into_tensor(every, mine, group=group)
        for number, values in zip(order, torch.split(every, longest)):
            at = 0
            for parameter in parts[number] if number != self.part else ():
                parameter.copy_(values[at : at + parameter.numel()].view_as(parameter))
                at += parameter.numel()

    def state_dict(self) -> dict[str, Any]:
        """Of this rank's part alone."""
        return self.local.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.local.load_state_dict(state_dict)
        self.take_settings()

    def share_settings(self) -> None:
        """With the optimizer within: a scheduler's learning rate."""
        for mine, theirs in zip(self.param_groups, self.local.param_groups):
            theirs.update(_settings_of(mine))

    def take_settings(self) -> None:
        for mine, theirs in zip(self.param_groups, self.local.param_groups):
            mine.update(_settings_of(theirs))

    def _by_type(self) -> _Parts:
        parts: _Parts = {}
        for parameter, part in self._owner.items():
            parts.setdefault(parameter.dtype, [[] for _ in range(self.part_count)])[part].append(parameter)
        return parts


def _deal_out(parameters: list[torch.Tensor], count: int) -> dict[torch.Tensor, int]:
    """The largest first, each to the part that has least; equal on all ranks."""
    load = [0] * count
    owner: dict[torch.Tensor, int] = {}
    for _, number in sorted((-parameter.numel(), number) for number, parameter in enumerate(parameters)):
        part = min(range(count), key=lambda i: (load[i], i))
        owner[parameters[number]] = part
        load[part] += parameters[number].numel()
    return {parameter: owner[parameter] for parameter in parameters}


def _settings_of(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
