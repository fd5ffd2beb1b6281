"""Gradients that are added up over several steps are dropped where a fault makes one of them void: they are no part of the state.

Most steps that end without an update leave gradients that nobody adds to: a GradScaler left the update out, and the next step begins with
zero_grad(). So only behind such a step it is looked, when the next gradient comes, whether it is added to something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from .._errors import Error
from ..abi import Code
from . import parallel


class Accumulation:
    """Threads: the trainer's, and those of its backward passes."""

    def __init__(self) -> None:
        self._hooks: list[RemovableHandle] = []
        self._refusal = ""

    def begin_step(self) -> None:
        """A fault drops the gradients, and with them the sign of the mistake, which stays."""
        if self._refusal:
            raise Error(self._refusal, Code.FAILED_PRECONDITION)

    def end_step(self, step: int, without_update: Iterable[Module], names: Mapping[torch.Tensor, str]) -> None:
        """`without_update`: the models, if this step had none."""
        self.forget()
        for model in without_update:
            for leaf, parameter in _leaves(model):
                if parameter.grad is not None and leaf.requires_grad:
                    hook = self._refuse_sum(parameter, step, names.get(parameter, "a parameter"))
                    self._hooks.append(leaf.register_hook(hook))  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _refuse_sum(self, parameter: torch.Tensor, step: int, name: str) -> Callable[[torch.Tensor], None]:
        is_first = True  # what follows in the step is added to what the step itself has made

        def refuse(_: torch.Tensor) -> None:
            nonlocal is_first
            looks, is_first = is_first, False
            if looks and parameter.grad is not None and bool(parallel.local_of(parameter.grad).any()):
                self._refusal = (
                    f"the gradient of '{name}' is added to what step {step} left behind without an update, and a fault would drop that. A step "
                    "is what ends with an update: put all micro-batches of one update into one step, or call zero_grad() where a step leaves "
                    "its update out"
                )
                self.begin_step()

        return refuse


def _leaves(model: Module) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What a backward pass has the gradient of, and where it is added up: two parameters where FSDP2 gathers one."""
    gathered = {parameter.sharded_param: parameter for parameter in parallel.sharded_parameters(model)}
    for parameter in parallel.parameters_of(model):
        group = gathered.get(parameter)
        yield getattr(group, "_unsharded_param", parameter), parameter

