"""Megatron's optimizers: what they keep for each parameter, and their update taken apart.

`step()` of Megatron's is three things: gradients, their norm and clipping, which need all ranks; arithmetic on what this rank has;
and, in a DistributedOptimizer, a gather of the parameters. Only the second is the update behind the gate.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .._errors import Error
from ..abi import Code
from ..terms import Piece
from ..torch import optimizers
from ..torch.run import TorchRun
from .boxes import Entry, Grid, Placed, entries_of
from .core import Core


@dataclass(frozen=True)
class _Kept:
    """What an optimizer updates in a parameter's stead: elements `first` and following of it."""

    placed: Placed
    main: torch.Tensor
    first: int
    is_sharded: bool


class Update:
    """All optimizers of a rank, as one."""

    def __init__(self, core: Core, optimizer: Any) -> None:
        self._core = core
        if not isinstance(optimizer, core.MegatronOptimizer):
            raise Error(f"optimizer is a {type(optimizer).__name__}, not what megatron's get_megatron_optimizer returns", Code.INVALID_ARGUMENT)
        chained = isinstance(optimizer, core.ChainedOptimizer)
        if chained and type(optimizer) is not core.ChainedOptimizer:
            raise Error(f"{type(optimizer).__name__} has collectives within its update: it is not protected yet", Code.INVALID_ARGUMENT)
        self.parts = [part for part in (optimizer.chained_optimizers if chained else [optimizer]) if part.optimizer is not None]
        for part in self.parts:
            _refuse(core, part)
        self.is_distributed = any(isinstance(part, core.DistributedOptimizer) for part in self.parts)
        self._optimizer = optimizer
        self._norm: float | None = None  # of the step's gradients, as Megatron clips by it

    def materialise(self, calls: Callable[[], int]) -> None:
        """Makes the optimizers' states, as they are before the first step."""
        for part in self.parts:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # shards of fp32 parameters are views, whose .grad Megatron uses
                optimizers.materialise(part.optimizer, calls, has_gradient=lambda _: True)

    def entries(self, placed: list[Placed], grid: Grid) -> Iterator[Entry]:
        """What is registered: parameters, what is updated in their stead, and what the optimizers keep for them."""
        by_parameter = {one.parameter: one for one in placed}
        sharded: set[torch.Tensor] = set()
        for part in self.parts:
            for kept in self._kept(part, by_parameter):
                sharded.update({kept.placed.parameter} if kept.is_sharded else ())
                yield from self._entries_of(part, kept, grid)
        for one in placed:
            if one.parameter in sharded or (self.is_distributed and one.parameter.requires_grad):
                continue  # this rank's shard is registered, the rest is gathered from where it is updated
            yield from entries_of(one, "", one.parameter, 0, grid.holders(one))

    def _entries_of(self, part: Any, kept: _Kept, grid: Grid) -> Iterator[Entry]:
        placed, main = kept.placed, kept.main
        holders = grid.holders(placed, kept.is_sharded)
        if kept.is_sharded:
            own = placed.parameter.detach().view(-1)[kept.first : kept.first + main.numel()]
            yield from entries_of(placed, "", own, kept.first, holders)
        if main.untyped_storage()._cdata != placed.parameter.untyped_storage()._cdata:
            yield from entries_of(placed, "optimizer.state.fp32_param.", main, kept.first, holders)
        for name, value in part.optimizer.state[main].items():
            if not isinstance(value, torch.Tensor):
                raise Error(f"{type(part.optimizer).__name__} keeps '{name}' as a {type(value).__name__}: only tensors are protected", Code.INVALID_ARGUMENT)
            if value.dim() == 0:
                key, whom = f"optimizer.state.{name}.{placed.name}", grid.holders_of_counts(placed)
                if kept.is_sharded:  # others may have nothing of this parameter, and so no count: each has it for itself
                    whom = holders
                yield key, value, Piece((), (), whom)
            else:
                yield from entries_of(placed, f"optimizer.state.{name}.", value, kept.first, holders)

    def _kept(self, part: Any, placed: dict[torch.Tensor, Placed]) -> Iterator[_Kept]:
        for parameter, main, first, is_sharded in self._pairs(part):
            if parameter not in placed:
                raise Error(f"the optimizer updates a parameter of shape {list(parameter.shape)} that is in no chunk of the model", Code.INVALID_ARGUMENT)
            yield _Kept(placed[parameter], main, first, is_sharded)

    def _pairs(self, part: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor, int, bool]]:
        """(parameter, what is updated in its stead, from which element, whether that is a shard)."""
        if isinstance(part, self._core.DistributedOptimizer):
            for parameter, (group, order) in part.model_param_group_index_map.items():
                first = part._get_model_param_range_map(parameter)["param"].start
                yield parameter, part.optimizer.param_groups[group]["params"][order], first, True
        elif isinstance(part, self._core.Float16Optimizer):
            for theirs, ours in zip(part.float16_groups, part.fp32_from_float16_groups):
                yield from ((parameter, main, 0, False) for parameter, main in zip(theirs, ours))
            yield from ((p, p, 0, False) for group in part.fp32_from_fp32_groups for p in group)
        else:
            yield from ((p, p, 0, False) for group in part.optimizer.param_groups for p in group["params"])

    def take_apart(self, run: TorchRun) -> None:
        """From here on `optimizer.step()` is the gate: its last part, `step_with_ready_grads`, is an update of the run's."""

        def step_with_ready_grads() -> bool:
            with run.update(), torch.no_grad():
                return all([self._local(part) for part in self.parts])

        self._optimizer.step_with_ready_grads = step_with_ready_grads
        # A chain asks for the norm, and clips by it; one optimizer alone does both in one.
        clips = "get_grad_norm" if isinstance(self._optimizer, self._core.ChainedOptimizer) else "clip_grad_norm"
        theirs = getattr(self._optimizer, clips)

        def noted(*args: Any) -> Any:
            self._norm = theirs(*args)
            return self._norm

        setattr(self._optimizer, clips, noted)

    def take_norm(self) -> float | None:
        """Of all gradients of the step, before they were clipped."""
        norm, self._norm = self._norm, None
        return float(self._optimizer.get_grad_norm() if norm is None else norm)  # where Megatron was told to clip nothing

    def _local(self, part: Any) -> bool:
        """The arithmetic alone: a DistributedOptimizer's own method gathers as well."""
        kind = self._core.MixedPrecisionOptimizer if isinstance(part, self._core.DistributedOptimizer) else type(part)
        return bool(kind.step_with_ready_grads(part))


def _refuse(core: Core, part: Any) -> None:
    if not isinstance(part, (core.FP32Optimizer, core.Float16Optimizer, core.DistributedOptimizer)):
        raise Error(f"{type(part).__name__} is none of megatron-core's FP32Optimizer, Float16OptimizerWithFloat16Params, "
                    "DistributedOptimizer: its update is not known", Code.INVALID_ARGUMENT)  # fmt: skip
    config = part.config
    reasons = {
        "optimizer_cpu_offload keeps states in two places": config.optimizer_cpu_offload,
        "use_precision_aware_optimizer keeps states within TransformerEngine": config.use_precision_aware_optimizer,
        "overlap_param_gather_with_optimizer_step has collectives within the update": config.overlap_param_gather_with_optimizer_step,
        "reuse_grad_buf_for_mxfp8_param_ag gathers parameters into gradients": config.reuse_grad_buf_for_mxfp8_param_ag,
        "Megatron's FSDP was not tried: use DistributedOptimizer": getattr(getattr(part, "ddp_config", None), "use_megatron_fsdp", False),
        f"its arithmetic is {type(part.optimizer).__module__}'s, where torch.optim's was tried":
            not type(part.optimizer).__module__.startswith("torch.optim"),
    }  # fmt: skip
    for reason, holds in reasons.items():
        if holds:
            raise Error(f"{type(part).__name__} cannot be protected: {reason}", Code.INVALID_ARGUMENT)
