"""The random generators that a trainer draws from without making one of its own: Python's and numpy's.

Their state is taken at every step, and that costs more than all the rest. Most steps draw from neither: the memory of a generator is compared with
what it was, and only where it has changed is its state asked for. That its memory holds all of its state is tried out on a generator of ours first;
where it does not show, the state is asked for every time.

Threads: the trainer's. Errors: none.
"""

from __future__ import annotations

import ctypes
import hashlib
import pickle
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .terms import Encoder, GoesOn


class Unchanged:
    """The pickled state of a generator, asked for anew where `memory` tells another value; None: every time."""

    def __init__(self, state: Callable[[], Any], memory: Callable[[], Any] | None) -> None:
        self._state = state
        self._memory = memory
        self._seen: Any = None
        self._pickled = b""

    def pickled(self) -> bytes:
        seen = self._memory() if self._memory is not None else None
        if seen is None or seen != self._seen:
            self._pickled = pickle.dumps(self._state(), protocol=pickle.HIGHEST_PROTOCOL)
            self._seen = seen
        return self._pickled


class Randomness(Encoder):
    """All of them, as one object of the run's."""

    GOES_ON_FROM_STEP = True  # what has been drawn behind it counts for nobody where a new stream begins

    def __init__(self, number: Callable[[], int] = lambda: 0) -> None:
        """`number`: this rank's by now."""
        self._number = number
        self._python = Unchanged(random.getstate, python_memory())
        self._numpy: Unchanged | None = None
        self._state: dict[str, bytes] = {}
        self._encoded = b""
        self.seeded: dict[int, dict[str, bytes]] = {}  # by number, what the script has seeded a rank with; none: as they are

    def encode(self) -> bytes:
        if (state := self.state_dict()) != self._state:
            self._state, self._encoded = state, pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
        return self._encoded

    def state_dict(self) -> dict[str, bytes]:
        state = {"python": self._python.pickled()}
        if "numpy" in sys.modules:
            if self._numpy is None:
                self._numpy = Unchanged(sys.modules["numpy"].random.get_state, numpy_memory())
            state["numpy"] = self._numpy.pickled()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.setstate(pickle.loads(state["python"]))
        if "numpy" in state:
            import numpy

            numpy.random.set_state(pickle.loads(state["numpy"]))

    def seeds(self) -> dict[str, bytes]:
        """What new streams are made from: a digest of each generator's state."""
        return {name: hashlib.blake2b(state, digest_size=16).digest() for name, state in self.state_dict().items()}

    def note_seeded(self) -> None:
        """Training begins: the script has seeded this rank."""
        self.seeded = {self._number(): self.seeds()}

    def take_over(self, saved: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
        """With other ranks, or other groups of them, no rank is who it was: a new stream from what the script has seeded this rank with
        and from what a rank had come to. Ranks that the script seeds alike (of one tensor parallel group) stay alike, the others differ, and
        no number that was drawn before the save is drawn again."""
        own, then = self.seeded.get(self._number()) or self.seeds(), next(iter(saved.values()))
        return self._begun_anew({name: mixed_seed(seeds, then.get(name, b"")) for name, seeds in own.items()})

    def _begun_anew(self, seeds: Mapping[str, int]) -> dict[str, bytes]:
        """The states of new streams from these."""
        state = {"python": pickle.dumps(random.Random(seeds["python"]).getstate())}
        if "numpy" in seeds:
            import numpy

            state["numpy"] = pickle.dumps(numpy.random.RandomState(seeds["numpy"] & 0xFFFFFFFF).get_state())
        return state


class Between(Encoder):
    """What the generators had come to where the script is on its own, between loops and sections, and draws there (the order of an epoch).

    A process that takes a lost one's place comes by, and has made none of the steps before: at each such place it is given what the lost one had. Places
    are counted as the script comes to them. Of the newest alone it is known, MOST bytes together."""

    MOST = 1 << 20

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._known: dict[int, bytes] = {}
        self._encoded = b""
        self._place = 0
        self._before = b""  # as the place at hand began; nothing: the script is not on its own

    def begin(self, arriving: bool) -> None:
        """A loop is over, or a section behind one."""
        self._place += 1
        if arriving and self._place in self._known:
            self._randomness.load_state_dict(pickle.loads(self._known[self._place]))
        self._before = self._randomness.encode()

    def end(self, arriving: bool) -> bool:
        """Whether this process has drawn other numbers here than the others did."""
        before, self._before = self._before, b""
        if not before or self._randomness.encode() == before:
            return False
        if arriving:
            return self._place not in self._known
        self._known[self._place] = before
        while sum(map(len, self._known.values())) > self.MOST:
            del self._known[min(self._known)]
        self._encoded = b""
        return False

    def encode(self) -> bytes:
        if not self._encoded:
            self._encoded = pickle.dumps(self._known, protocol=pickle.HIGHEST_PROTOCOL)
        return self._encoded

    def state_dict(self) -> dict[int, bytes]:
        return dict(self._known)

    def load_state_dict(self, state: Mapping[int, bytes]) -> None:
        self._known, self._encoded = dict(state), b""

    @staticmethod
    def take_over(_: Mapping[int, Any]) -> dict[int, bytes]:
        """Other ranks have streams of their own."""
        return {}


class Seeded(GoesOn):
    """What the script has seeded ranks' generators with, for whoever has their numbers: once the world has changed, all know of all."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def state_dict(self) -> dict[int, dict[str, bytes]]:
        return self._randomness.seeded

    def load_state_dict(self, state: dict[int, dict[str, bytes]]) -> None:
        self._randomness.seeded = state

    def go_on(self, saved: Mapping[int, dict[int, dict[str, bytes]]]) -> dict[int, dict[str, bytes]]:
        """Who has just come knows its own."""
        known = {number: seeds for state in (self._randomness.seeded, *saved.values()) for number, seeds in state.items()}
        return dict(sorted(known.items()))  # the same bytes on all


def mixed_seed(own: bytes, then: bytes) -> int:
    """Of what a generator was seeded with, and what one has come to."""
    return int.from_bytes(hashlib.blake2b(own + then, digest_size=8).digest(), "little") >> 1  # torch's are signed


def python_memory() -> Callable[[], Any] | None:
    """Of the generator behind the functions of `random`."""

    def of(generator: Any) -> Callable[[], Any]:
        body = _Body(generator)
        return lambda: (generator.gauss_next, body.read())  # what gauss() keeps for its next call is an attribute

    trial = random.Random(1)
    draws = (trial.random, lambda: trial.gauss(0, 1), lambda: trial.gauss(0, 1))
    return of(random.getstate.__self__) if _shows_all(of(trial), draws) else None  # type: ignore[attr-defined]


def numpy_memory() -> Callable[[], Any] | None:
    """Of the generator behind the functions of numpy.random."""
    from numpy.random import MT19937, RandomState, mtrand

    def of(generator: Any) -> Callable[[], Any]:
        body = _Body(generator)  # what it keeps for the next normal number, and which stream of bits it has

        def memory() -> Any:
            bits = generator._bit_generator
            if type(bits) is not MT19937:
                return None
            return body.read(), ctypes.string_at(bits.ctypes.state_address, _MT19937_BYTES)

        return memory

    trial = RandomState(1)
    draws = (trial.random_sample, trial.standard_normal, trial.standard_normal)
    return of(mtrand._rand) if _shows_all(of(trial), draws) else None


_MT19937_BYTES = 625 * 4  # 624 words and a position


class _Body:
    """An object's own memory, without its head, which holds its count of references."""

    def __init__(self, thing: Any) -> None:
        head = object.__basicsize__
        self._at, self._size = id(thing) + head, type(thing).__basicsize__ - head

    def read(self) -> bytes:
        return ctypes.string_at(self._at, self._size)


def _shows_all(memory: Callable[[], Any], draws: Iterable[Callable[[], Any]]) -> bool:
    """Whether memory stays as it is where nothing is drawn, and each of the draws is seen in it."""
    if sys.implementation.name != "cpython":
        return False
    seen = memory()
    if seen is None or memory() != seen:
        return False
    for draw in draws:
        draw()
        before, seen = seen, memory()
        if before == seen:
            return False
    return True
