"""Registered parameters that steps change before their gate: a momentum encoder that moves in the forward pass, prototypes that a step normalises first.

Such a change belongs to its step, which may be void. So these parameters work in drafts (drafts.py), as an optimizer does that steps before the gate.
Which they are is seen, not said. Those that no optimizer updates are tried in drafts in the first steps of a process, MOST bytes at a time for TIMES steps
each (an encoder that begins as a copy moves in the second), since most scripts write past torch's counts there (`.data`); the others in its first step,
where they have no more than MOST bytes. What moves later, or is larger, is found by these counts: in the first step, or in the step after the one that
strays.py has told of.

A parameter that was given other memory (`parameter.data = ...`) gets its own back, with what it has become.

Threads: the trainer's. Errors: Error for other memory of another shape or type.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.nn import Parameter

from .._errors import Error
from ..abi import Code
from .drafts import Drafts, bytes_of

MOST = 2 << 30
TIMES = 4


class Registered(Protocol):
    """What is asked of the registry."""

    parameters: dict[torch.Tensor, str]
    drafts: Drafts
    places: Any

    @property
    def gathers(self) -> bool: ...
    def is_updated(self, parameter: torch.Tensor) -> bool: ...
    def is_held(self, parameter: torch.Tensor) -> bool: ...


class Early:
    def __init__(self, registry: Registered) -> None:
        self._registry = registry
        self._parameters: dict[torch.Tensor, str] | None = None
        self._homes: dict[torch.Tensor, torch.Tensor] = {}  # each on the memory that is its own
        self._unseen: list[torch.Tensor] = []  # that no optimizer updates
        self._tried: list[torch.Tensor] = []  # of those, in this step
        self._once: list[torch.Tensor] = []  # that one does: in the first step
        self._times = 0  # steps in which they were
        self._moving: list[torch.Tensor] = []
        self._counts: dict[torch.Tensor, int] = {}  # as the step began, where it is looked for what moves
        self._steps = 0
        self._assigns = False  # some are given other memory
        self.others: dict[torch.Tensor, str] = {}  # that no step is expected to change before its gate
        self.moves_behind = False  # steps change some behind their update, too

    def begin_step(self, looks: bool) -> bool:
        """`looks`: something changed before the last gate, and it is not known what. Whether anything works in a draft."""
        is_first = self._parameters is not self._registry.parameters
        if is_first:
            self._begin()
        if not self._tried and self._unseen:
            self._take_unseen()
        if looks or is_first:
            self._counts = {parameter: parameter._version for parameter in self._homes}
        drafted = [*self._moving, *self._tried, *self._once]
        if drafted:
            self._registry.drafts.before_step(drafted)
        return bool(drafted)

    def open_update(self) -> None:
        """Behind the gate, before drafts become the state."""
        for parameter in (*self._moving, *self._tried, *self._once):
            self._bring_home(parameter)
        found = [parameter for parameter in (*self._tried, *self._once) if self._registry.drafts.differs(parameter)]
        found += [parameter for parameter, count in self._counts.items() if parameter._version != count]
        self._moving = list(dict.fromkeys([*self._moving, *found]))
        self._counts = {}

    def end_step(self) -> None:
        self.end_update()
        self._steps += 1
        if self._tried:
            self.moves_behind |= any(self._registry.drafts.differs(parameter) for parameter in self._tried)
            self._times += 1
        if self._tried or self._once:
            known = {*self._moving}
            stay = [parameter for parameter in self._tried if parameter not in known] if self._times < TIMES else []
            self._registry.drafts.forget({*self._tried, *self._once} - {*stay} - known)
            self._tried, self._once = stay, []
        if len(self.others) + len(self._moving) + len(self._tried) != len(self._registry.parameters):
            self._sort()

    def drop(self) -> None:
        """What a step that is void gave them is nothing."""
        if self._parameters is not self._registry.parameters:
            return
        self._counts = {}
        for parameter, home in self._homes.items():
            if not _shares(parameter, home):
                parameter.data = home

    def bring_home(self) -> bool:
        """Whether some had other memory, and are others there."""
        if self._parameters is not self._registry.parameters:
            return False
        self._assigns = True
        return any([self._bring_home(parameter) for parameter in self._homes])

    def end_update(self) -> None:
        """Looks where they lie, in first steps and where some were given other memory before."""
        if (self._assigns or self._steps < TIMES) and self._registry.places.first_moved():
            self.bring_home()

    def _begin(self) -> None:
        self._parameters = self._registry.parameters
        held = () if self._registry.gathers else self._parameters
        self._homes = {one: one.data for one in held if type(one) in (Parameter, torch.Tensor) and self._registry.is_held(one)}
        self._unseen = [parameter for parameter in self._homes if not self._registry.is_updated(parameter)]
        self._once = [parameter for parameter in self._homes if self._registry.is_updated(parameter)]
        if bytes_of(self._once) > MOST:
            self._once = []
        self._tried, self._moving, self._counts, self.moves_behind = [], [], {}, False
        self._steps, self._assigns = 0, False
        self._sort()

    def _take_unseen(self) -> None:
        size = self._times = 0
        while self._unseen and (not size or size + self._unseen[-1].nbytes <= MOST):
            self._tried.append(self._unseen.pop())
            size += self._tried[-1].nbytes
        self._sort()

    def _sort(self) -> None:
        own = {*self._moving, *self._tried, *self._once}
        self.others = {parameter: name for parameter, name in self._registry.parameters.items() if parameter not in own}

    def _bring_home(self, parameter: torch.Tensor) -> bool:
        home = self._homes[parameter]
        if _shares(parameter, home):
            return False
        if (parameter.shape, parameter.dtype, parameter.device) != (home.shape, home.dtype, home.device):
            raise Error(f"'{self._registry.parameters[parameter]}' was given other memory, and is {parameter.dtype} of shape {list(parameter.shape)} there: what "
                        "is registered keeps its type and shape", Code.FAILED_PRECONDITION)  # fmt: skip
        is_other = not torch.equal(home, parameter.data)
        home.copy_(parameter.data)
        parameter.data = home
        return is_other


def _shares(parameter: torch.Tensor, home: torch.Tensor) -> bool:
    return bool(parameter.untyped_storage()._cdata == home.untyped_storage()._cdata)

