"""The words of a run: its phases, tasks and rungs by name, and what is told to handlers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

# Codes and outcomes of the C ABI.
OK, INTERRUPTED, INTERNAL, PAUSED, THROW = 0, 1, 13, 14, 15
FINISHED, WAS_INTERRUPTED, RAISED, COMM_ERROR = 0, 1, 2, 3


class TaskKind(enum.IntEnum):
    LOOP = 1
    CLEAN = 2
    REBUILD_GROUP = 3
    REPAIR = 4
    ROLLBACK = 5
    SAVE = 6
    RENAME = 7
    CONTINUE = 8
    UNWIND = 9
    ENDED = 10


PHASES = {"forward": 1, "backward": 2, "gradient-sync": 3, "gate": 4, "update": 5, "param-sync": 6, "between": 7}
ACTIVITIES = {"warmup": 1, "eval": 2, "save": 3, "compile": 4}
RUNGS = ("resume", "retry", "patch", "rebuild", "adopt", "spare", "respawn", "shrink", "reload", "dump", "exit")
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


class Guarded(Protocol):
    """A training loop: trains from step `first` + 1 on."""

    def __call__(self, first: int, /) -> object: ...


Handler = Callable[[Incident], object]
