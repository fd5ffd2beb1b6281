"""What a framework's loop calls of the script's own beside models: callbacks, a Trainer of its own kind.

Such a loop is entered again where a step was void, with what follows its newest update, and a process that takes a lost one's place begins with new
callbacks: a count, a list of losses, an average would go on from other values. So their attributes are an object of the run's, as those of modules are
(attributes.py), up to MOST each. What they keep elsewhere (a larger average, globals, a data set) is told of where a fault makes it wrong, as what the
source shows (carried.py).

Threads: the trainer's. Errors: none. Units: bytes.
"""

from __future__ import annotations

import collections
import dis
import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.nn import Module

from ..source import FRAMEWORKS
from ..terms import Encoder
from . import parallel
from .attributes import MOST, PLAIN, OfOne, Shares

_NUMBERS = PLAIN - {str, bytes}


class Companion(Encoder):
    """One of them; the attributes of a framework's own classes are left to that. `model`: what lies in it is kept by itself."""

    def __init__(self, thing: Any, model: Module) -> None:
        self._model = model
        self._storages: set[int] | None = None  # of the model, while it is looked
        self._held = _Held(thing, self._shares)
        self._encoded = b""

    def encode(self) -> bytes:
        if self._held.look() or not self._encoded:
            self._encoded = pickle.dumps(dict(sorted(self._held.changes().items())), protocol=pickle.HIGHEST_PROTOCOL)
        self._storages = None
        return self._encoded

    def missed(self) -> str:
        large = self._held.too_large()
        return f"attributes that have come to more than {MOST >> 20} MiB each: {', '.join(large)}" if large else ""

    def state_dict(self) -> Any:
        return pickle.loads(self.encode())

    def load_state_dict(self, state: Mapping[str, bytes | None]) -> None:
        self._held.become(state)
        self._encoded, self._storages = b"", None  # is of what was before

    def is_of(self, held: Any, name: str) -> bool:
        return self._held.home is held and self._held.keeps(name)

    def _shares(self, tensor: torch.Tensor) -> bool:
        if self._storages is None:
            self._storages = {parallel.local_of(one).untyped_storage().data_ptr() for one in (*self._model.parameters(), *self._model.buffers())}
        return tensor.untyped_storage().data_ptr() in self._storages


def companions_of(things: Mapping[str, Any], model: Module) -> dict[str, Companion]:
    """Each an object by itself: of what all ranks have alike one is given by the others what a lost rank had not told."""
    return {f"{type(thing).__name__} {name}": Companion(thing, model) for name, thing in things.items() if hasattr(thing, "__dict__")}


class _Held(OfOne):
    """What is kept of a companion."""

    def __init__(self, thing: Any, shares: Shares) -> None:
        self._theirs = _set_by(type(thing))
        self._kept_once: set[str] = set()
        super().__init__(thing, shares)

    def keeps(self, name: str) -> bool:
        return name not in self._theirs and self._packed(name) is not None

    def changes(self) -> dict[str, bytes | None]:
        changed = super().changes()
        self._kept_once |= changed.keys()
        return changed

    def too_large(self) -> list[str]:
        """Tensors that were too large at first are told as what the source shows."""
        return sorted(name for name in self._kept_once | self._first.keys() if name in self.home and not _fits(self.home[name]))

    def _names(self) -> list[str]:
        return [name for name in super()._names() if name not in self._theirs]

    @staticmethod
    def _getter(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
        return lambda home: tuple(home[name] for name in names)

    def _packed(self, name: str) -> bytes | None:
        return super()._packed(name) if _fits(self.home[name]) else None


def _fits(value: Any) -> bool:
    """Not more than MOST in all."""
    left, level = MOST, [value]
    while level and left >= 0:
        one = level.pop()
        left -= 8
        if isinstance(one, (str, bytes)):
            left -= len(one)
        elif isinstance(one, Mapping):
            level += (*one.keys(), *one.values())
        elif isinstance(one, (list, tuple, set, collections.deque)):
            if _NUMBERS.issuperset(map(type, one)):
                left -= 8 * len(one)
            else:
                level += one
        else:
            left -= int(getattr(one, "nbytes", 0))
    return left >= 0


def is_theirs(kind: type) -> bool:
    """A framework's own, and none that a script derives from it."""
    return kind.__module__.partition(".")[0] in FRAMEWORKS


def _set_by(kind: type) -> frozenset[str]:
    """Attributes that a framework's own classes set."""
    functions = (inspect.unwrap(function) for one in kind.__mro__ if is_theirs(one) for function in vars(one).values() if isinstance(function, FunctionType))
    return frozenset(done.argval for function in functions for done in dis.get_instructions(function) if done.opname == "STORE_ATTR")


def functions_of(thing: Any) -> Iterator[MethodType]:
    """Of classes that are none of a framework's."""
    for kind in type(thing).__mro__:
        yield from (MethodType(own, thing) for own in vars(kind).values() if isinstance(own, FunctionType) and not is_theirs(kind))


def is_within(error: BaseException | None, method: MethodType) -> bool:
    """Whether `error` was raised in a call of it."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_frame.f_code is not method.__func__.__code__:
        trace = trace.tb_next
    return trace is not None
