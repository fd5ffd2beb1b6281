"""The words of a run: its phases, tasks and rungs by name, and what is told to handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .abi import Activity, Phase, Rung, TaskKind


def _by_name(numbers: type[Phase] | type[Activity] | type[Rung]) -> dict[str, int]:
    return {number.name.lower().replace("_", "-"): int(number) for number in numbers}


PHASES = _by_name(Phase)
ACTIVITIES = _by_name(Activity)
RUNGS = tuple(_by_name(Rung))
FIRST_OF_HOLDERS = 65537  # layouts from here on are of a few ranks alone (kintsugi_set_layout)
HANDLERS = {"clean": TaskKind.CLEAN, "rebuild": TaskKind.REBUILD_GROUP, "rollback": TaskKind.ROLLBACK}


@dataclass(frozen=True)
class Incident:
    """What a handler is told."""

    step: int  # the step all ranks meet at
    generation: int
    rung: str
    left_ms: int
    partners: tuple[int, ...]
    fresh: bool  # the run begins: nothing has broken
    relayout: bool = False  # state is cut anew for those that take part then
    registered_in: int = 0  # what was cut anew in this generation is what is registered; 0: nothing is said


@dataclass(frozen=True)
class Piece:
    """Which part of a larger tensor an array is, and which ranks hold the very same part, this one among them."""

    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    holders: tuple[int, ...]  # ascending
    box: tuple[int, ...] | None = None  # where the array has another shape than its part of the tensor
    flat: tuple[int, int] = (0, 0)  # the array is a range of the box's elements, row-major; (0, 0): all of them


class Codec(Protocol):
    """Anything whose state can be given and taken back."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


class Encoder:
    """State that makes its own bytes: the very same object again where nothing has changed, so that nothing is handed on.

    No abstract class: each step asks each object whether it is one, and those are slow to ask."""

    def encode(self) -> bytes:
        raise NotImplementedError

    def missed(self) -> str:
        """What `encode` did not have when it was called last, as far as that can be seen now."""
        return ""


class GoesOn:
    """State that goes on among other ranks in a live run otherwise than in one that resumes. A class, which nobody's own is by chance."""

    def go_on(self, saved: Mapping[int, Any]) -> Any:
        """`saved`: of all ranks that there were, by number."""
        raise NotImplementedError


class Guarded(Protocol):
    """A training loop: trains from step `first` + 1 on."""

    def __call__(self, first: int, /) -> object: ...


Handler = Callable[[Incident], object]
