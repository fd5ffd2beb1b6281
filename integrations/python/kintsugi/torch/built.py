"""Model and wrappers made anew after a fault, where what a broken step left in them cannot be reset: `TorchRun.build`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import Module

from .._errors import Error
from ..abi import Code
from ..terms import Incident
from . import parallel
from .groups import Group, Groups

Make = Callable[[], Mapping[str, Any]]


class Reset(NamedTuple):
    """How the models were rid of what a broken step had left in them."""

    step: int  # the last one that is committed
    how: Literal["in place", "made anew"]
    why: str  # of "made anew"


def registered_of(things: Mapping[str, Any]) -> dict[str, Any]:
    """Meshes and groups have no state."""
    return {name: thing for name, thing in things.items() if not isinstance(thing, (DeviceMesh, dist.ProcessGroup))}


class Built:
    """What the function given to `TorchRun.build` made, by name; after a fault that which it made then. Keep this object, not what
    is in it."""

    def __init__(self, things: dict[str, Any]) -> None:
        self._things = things

    def __getattr__(self, name: str) -> Any:
        try:
            return self._things[name]
        except KeyError:
            raise AttributeError(f"the function given to run.build made no '{name}', but {', '.join(self._things)}") from None


class Builder:
    """Calls the function, and knows which process groups it made. Threads: the trainer's."""

    def __init__(self, make: Make, always: bool, groups: Groups) -> None:
        self._make = make
        self._always = always
        self._groups = groups
        self._made: list[Group] = []  # by the function's first call; these stay, others come below them
        self._known_to_torch: list[dist.ProcessGroup] = []
        self.things: dict[str, Any] = {}

    def make(self) -> None:
        self._call()
        self._made = [group for group in self._groups.all if group.is_built]

    def make_anew(self, incident: Incident, others: bool) -> None:
        """`others`: other ranks take part than before, so that the groups are others, too."""
        names = list(self.things)
        for group in self._known_to_torch:
            if group in dist.distributed_c10d._world.pg_map:  # the attempt before may have gone so far
                dist.destroy_process_group(group)
        self._groups.clean(incident)
        parallel.forget_meshes()
        if others:
            with self._groups.among_others():
                self.make()
        else:
            with self._groups.instead_of(self._made):
                self._call()
        if list(self.things) != names:
            raise Error(f"the function given to run.build made {', '.join(names)} before, and {', '.join(self.things)} now", Code.INVALID_ARGUMENT)

    def why_anew(self, models: list[Module]) -> str:
        """Empty: they can be reset in place."""
        return "run.build(always=True)" if self._always else "; ".join(parallel.not_resettable(models))

    def _call(self) -> None:
        known = dist.distributed_c10d._world.pg_map
        before = set(known)
        try:
            with self._groups.building():
                made = self._make()
        finally:
            self._known_to_torch = [group for group in known if group not in before]
        if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
            raise Error(f"the function given to run.build returned {type(made).__name__}: it returns what it made by name, as in "
                        '{"model": model, "optimizer": optimizer}', Code.INVALID_ARGUMENT)  # fmt: skip
        self.things.clear()
        self.things.update(made)
