"""An Accelerator of Accelerate's as an object of the run's: `run.register(accelerator=accelerator, ...)`.

`accumulate()` counts batches in it and says in GradientState, of which a process has one, whether this one completes an update. Both move before
a step's gate. Which loaders are being walked stands there, too: a section that was broken off leaves its own behind. What one rank has told by
`set_trigger()` lies in it until all look (`check_trigger()`), maybe many steps later.

Threads: the trainer's. Errors: Error by name for what is not protected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from .._errors import Error
from ..abi import Code
from .prepared import Prepared


def is_accelerator(thing: Any) -> bool:
    return type(thing).__module__ == "accelerate.accelerator" and type(thing).__name__ == "Accelerator"


def accumulated_steps() -> int:
    """Batches of an update, as Accelerate has been told; 1 where nobody has one."""
    module = sys.modules.get("accelerate.state")
    if module is None or not module.GradientState().initialized:
        return 1
    return int(module.GradientState().num_steps)


class Counts:
    """`walked`: the prepared loaders that the run walks, by name."""

    def __init__(self, accelerator: Any, walked: Callable[[], Mapping[str, Prepared]]) -> None:
        _refuse(accelerator)
        self._accelerator = accelerator
        self._walked = walked
        self.scaler = accelerator.scaler  # of a scaled loss; None: there is none

    def state_dict(self) -> dict[str, Any]:
        accelerator = self._accelerator
        drawn = {name: loader.state_dict() for name, loader in self._walked().items() if loader.in_pass and loader.world()}
        return {"step": accelerator.step, "sync": accelerator.gradient_state.sync_gradients, "saves": accelerator.project_configuration.iteration,
                "trigger": accelerator.flag_tensor is not None and bool(accelerator.flag_tensor), "loaders": drawn}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        accelerator = self._accelerator
        accelerator.step = state["step"]
        accelerator.gradient_state._set_sync_gradients(state["sync"])
        accelerator.project_configuration.iteration = state["saves"]
        if state["trigger"]:
            accelerator.set_trigger()
        else:
            accelerator.flag_tensor = None
        walked = self._walked()
        for name, kept in state["loaders"].items():
            if name in walked and walked[name].foreign:
                walked[name].correct(kept)
        self._forget_broken_passes(list(walked.values()))
        for optimizer in accelerator._optimizers:
            optimizer._accelerate_step_called = False  # a broken update has left it: the scaler leaves one out where it is not set

    def take_over(self, saved: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        return {**saved[min(saved)], "trigger": any(state["trigger"] for state in saved.values()), "loaders": {}}

    def _forget_broken_passes(self, walked: list[Prepared]) -> None:
        gradients = self._accelerator.gradient_state
        ours = [loader for loader in gradients.dataloader_references if any(known.in_pass and known.is_of(loader) for known in walked)]
        gradients.dataloader_references = [None, *ours]


def _refuse(accelerator: Any) -> None:
    gradients = accelerator.gradient_state
    reasons = {
        f"it is for {accelerator.distributed_type.value}: MULTI_CPU and MULTI_GPU were tried": accelerator.distributed_type.value not in ("MULTI_CPU", "MULTI_GPU", "NO"),
        "sync_with_dataloader=False lets an update's batches go from one pass into the next, and a step ends with its pass: leave it out":
            gradients.num_steps > 1 and not gradients.sync_with_dataloader,
    }  # fmt: skip
    for reason, holds in reasons.items():
        if holds:
            raise Error(f"this Accelerator cannot be protected: {reason}", Code.INVALID_ARGUMENT)
