"""All streams of random numbers that a data loader may draw from: those of the process, and generators that its parts keep as their own.

A generator of one's own is found in the attributes of sampler, dataset and `collate_fn`, of what these hold, in the closures of their
functions, and among the globals that these functions name. What is hidden deeper (in C, in a file) is not found.

Some make theirs on the way: a collate function for its first batch, a data set in `set_epoch`. `look` finds these; before that they do not exist, to
which `put_back` returns, too.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import random
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

from .._errors import Error
from ..abi import Code
from .devices import Device
from .randomness import Randomness

World = dict[str, bytes]  # the state of each stream, by its name
SHARED = ("torch", "python", "numpy", "device")  # the process's own, which a trainer draws from, too
_MOST_PARTS = 256  # of a list or dict that is looked into: a list of samples is longer, and holds no generators; one of data sets may
_MOST_LOOKED_AT = 20000


_OF_DATA = re.compile(r"(dataset|loader \d+\.dataset)(\.|$)")  # below a data set, and that of a loader that a framework walks

_ABSENT = object()


class _Slot(NamedTuple):
    """Where a generator is that was made on the way, or what was made with it and holds it."""

    holder: MutableMapping[Any, Any]
    key: Any
    before: Any  # None, or _ABSENT

    def thing(self) -> Any:
        return self.holder.get(self.key)

    def fill(self, thing: Any) -> None:
        self.holder[self.key] = thing

    def clear(self) -> None:
        if self.before is _ABSENT:
            self.holder.pop(self.key, None)
        else:
            self.holder[self.key] = self.before


class Streams:
    """What moves when batches are fetched. `roots`: by name, what is looked into for generators; the data set among them, and those that it is
    made of (StackDataset, ConcatDataset, Subset), count as one where they have a state of their own. `device`: whose generator is one of the
    process's; None in a loader's workers, which have none."""

    def __init__(self, roots: Mapping[str, Any], device: Device | None = None) -> None:
        self._shared = Randomness(device)
        self._slots: dict[str, _Slot] = {}  # of generators that were made on the way
        self._aside: dict[str, tuple[Any, Any]] = {}  # of these, those that are not made yet, or not any more; and what is in their slots else
        self.begin(roots)

    def begin(self, roots: Mapping[str, Any]) -> None:
        """What there is before anything is drawn."""
        self._roots = roots
        self._own, self._empty, things = _found(roots)
        self._paths = set(things)
        self._forget_made_anew()

    def look(self) -> None:
        """Once more, for what was made on the way."""
        known = {id(generator) for generator in self._own.values()}
        own, empty, things = _found(self._roots)
        for name in own.keys() - self._own.keys() - self._slots.keys():
            if id(own[name]) not in known and (slot := self._slot_of(name, things)):
                self._slots[name] = slot
        self._own, self._empty, self._paths = own, empty, set(things)
        self._forget_made_anew()

    def _slot_of(self, name: str, things: Mapping[str, Any]) -> _Slot | None:
        """None: of what holds it (a closure, a list, a class) nobody can take it away again."""
        path, _, key = name.rpartition(".")
        while path and path not in self._paths:
            name = path
            path, _, key = name.rpartition(".")
        holder = things.get(path)
        if isinstance(holder, types.FunctionType):
            holder = holder.__globals__
        elif not isinstance(holder, MutableMapping):
            holder = getattr(holder, "__dict__", {})
        return _Slot(holder, key, None if name in self._empty else _ABSENT) if key in holder else None

    def _forget_made_anew(self) -> None:
        self._aside = {name: aside for name, aside in self._aside.items() if name not in self._own}

    def take(self) -> World:
        return {**self._shared.state_dict(), **self.take_own()}

    def take_own(self) -> World:
        return {name: state_of(generator) for name, generator in self._own.items()}

    def own(self) -> list[Any]:
        return list(self._own.values())

    def lacks(self, states: Mapping[str, bytes]) -> list[str]:
        return sorted(states.keys() - set(SHARED) - self._own.keys() - self._aside.keys())

    def put(self, states: Mapping[str, bytes]) -> None:
        """Those of which this tells; the others stay as they are."""
        shared = {name: states[name] for name in SHARED if name in states}
        if shared:
            self._shared.load_state_dict({**self._shared.state_dict(), **shared})
        if lacks := self.lacks(states):
            raise Error(f"the saved state has a random generator '{lacks[0]}', and this loader has none of that name: make it as it was, before the first "
                        "batch", Code.FAILED_PRECONDITION)  # fmt: skip
        for name in states.keys() - set(SHARED):
            if name in self._aside:
                self._own[name], thing = self._aside.pop(name)
                self._slots[name].fill(thing)
            set_state(self._own[name], states[name])

    def put_back(self, states: Mapping[str, bytes]) -> None:
        """All of one's own, as they were: those that were made since are not made yet."""
        self.look()
        gone = self._slots.keys() & self._own.keys() - states.keys()
        self._aside |= {name: (self._own.pop(name), self._slots[name].thing()) for name in gone}
        for name in gone:
            self._slots[name].clear()
        self.put(states)

    @contextlib.contextmanager
    def preserved(self, own: bool = True) -> Iterator[None]:
        """Whatever is drawn within, afterwards nothing was; not own: of generators of one's own it was."""
        world = self.take() if own else self._shared.state_dict()
        try:
            yield
        finally:
            self.put_back(world) if own else self.put(world)

    def names(self, *roots: str) -> list[str]:
        """Of the generators that were found below these roots."""
        return [name for name in self._own for root in roots if name == root or name.startswith(root + ".")]

    def name_of(self, generator: torch.Generator | None) -> str:
        return next((name for name, own in self._own.items() if own is generator), "torch")


def moved(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> World:
    """The states after, of those streams that were drawn from."""
    return {name: state for name, state in after.items() if before.get(name) != state}


def has_state(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def state_of(generator: Any) -> bytes:
    if has_state(generator):
        return pickle.dumps(generator.state_dict())
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, random.Random):
        return pickle.dumps(generator.getstate())
    return pickle.dumps(generator.bit_generator.state if hasattr(generator, "bit_generator") else generator.get_state())


def set_state(generator: Any, state: bytes) -> None:
    if has_state(generator):
        generator.load_state_dict(pickle.loads(state))
    elif isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif isinstance(generator, random.Random):
        generator.setstate(pickle.loads(state))
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = pickle.loads(state)
    else:
        generator.set_state(pickle.loads(state))


@contextlib.contextmanager
def kept(generators: Iterable[Any]) -> Iterator[None]:
    """Whatever is put back within, these stay as they are."""
    states = [(generator, state_of(generator)) for generator in generators]
    yield
    for generator, state in states:
        set_state(generator, state)


class Drawn:
    """A generator of the script's own, as an object of the run's."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def state_dict(self) -> bytes:
        return state_of(self._generator)

    def load_state_dict(self, state: bytes) -> None:
        set_state(self._generator, state)


def kinds_of_generators() -> tuple[type, ...]:
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    if "numpy" in sys.modules:
        from numpy.random import Generator, RandomState

        kinds = (*kinds, Generator, RandomState)
    return kinds


def generators_of(roots: Mapping[str, Any]) -> dict[str, Any]:
    """Each once, by the shortest path to it."""
    return _found(roots)[0]


def _found(roots: Mapping[str, Any]) -> tuple[dict[str, Any], set[str], dict[str, Any]]:
    """Generators, paths at which there is None, and all that was looked at."""
    kinds = kinds_of_generators()
    found: dict[str, Any] = {}
    empty: set[str] = set()
    things = dict(below(roots, kinds, empty.add))
    for path, thing in things.items():
        if isinstance(thing, kinds):
            found[path] = thing
        elif (path == "dataset" or _OF_DATA.match(path) and isinstance(thing, Dataset)) and has_state(thing):
            found[f"{path}.state_dict()"] = thing
    return found, empty, things


def below(roots: Mapping[str, Any], kinds: tuple[type, ...], tell_empty: Callable[[str], object] = lambda _path: None) -> Iterator[tuple[str, Any]]:
    """Whatever these hold, each once, by the shortest path to it; not what is in things of these kinds, nor the process's own generators."""
    seen = {id(torch.default_generator), id(random.getstate.__self__)}  # type: ignore[attr-defined]
    if "numpy" in sys.modules:
        from numpy.random import mtrand

        seen.add(id(mtrand._rand))
    alive = []  # what is made on the way, so that no identity is used twice
    level = list(roots.items())
    while level and len(seen) < _MOST_LOOKED_AT:
        deeper: list[tuple[str, Any]] = []
        for path, thing in level:
            if thing is None:
                tell_empty(path)
            if id(thing) in seen or isinstance(thing, (str, bytes, int, float, torch.Tensor, type, types.ModuleType, types.NoneType)):
                continue
            seen.add(id(thing))
            alive.append(thing)
            yield path, thing
            if not isinstance(thing, kinds):
                deeper.extend((f"{path}.{name}", part) for name, part in _parts(thing, kinds))
        level = deeper


def _parts(thing: Any, kinds: tuple[type, ...]) -> Iterable[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        yield from ((str(key), part) for key, part in thing.items()) if len(thing) <= _MOST_PARTS else ()
    elif isinstance(thing, (list, tuple, set, frozenset)):
        many = len(thing) > _MOST_PARTS and not isinstance(next(iter(thing)), Dataset)
        yield from () if many else ((str(i), part) for i, part in enumerate(thing))
    elif isinstance(thing, types.MethodType):
        yield from (("self", thing.__self__), ("function", thing.__func__))
    elif isinstance(thing, functools.partial):
        yield from (("function", thing.func), ("arguments", thing.args), ("keywords", thing.keywords))
    elif isinstance(thing, types.FunctionType):
        yield from _parts_of_function(thing, kinds)
    elif not type(thing).__module__.startswith("kintsugi."):
        yield from getattr(thing, "__dict__", {}).items()
        for kind in type(thing).__mro__:
            if not kind.__module__.startswith(("torch.", "numpy.", "builtins", "collections")):
                yield from ((name, part) for name, part in vars(kind).items() if isinstance(part, (*kinds, types.FunctionType)))


def _parts_of_function(function: types.FunctionType, kinds: tuple[type, ...]) -> Iterable[tuple[str, Any]]:
    if function.__module__ is not None and function.__module__.startswith(("torch.", "numpy.")):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # a cell that is empty so far
            yield name, cell.cell_contents
    yield from enumerate_named(function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    for name in function.__code__.co_names:
        named = function.__globals__.get(name, _ABSENT)
        if named is None or isinstance(named, (*kinds, types.FunctionType)):
            yield name, named


def enumerate_named(things: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    return ((str(i), thing) for i, thing in enumerate(things))
