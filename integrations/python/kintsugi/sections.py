"""What all ranks do together between the steps, and agree on when it is done: evaluation, saving, a word on whether to stop.

A section is committed when every rank has done it. Ranks tell each other through the run's store, so that no process group is needed and
whoever waits is freed where an incident begins. Each rank counts itself in; the last one says go. Where an incident strikes between,
those that have passed know that all had done it, and say so (Run's rebuild).

The results of ranks are compared by their digests: where all are alike nothing more is told. Where they differ each rank also keeps that
of the rank before it, for the case that this one is lost.

Threads: the trainer's. Errors: Error where ranks stand in different sections; what the store refuses in an incident is Interrupted.
Units: results are pickled bytes, RESULT_MOST at most.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from typing import Any

from . import _core
from ._errors import Error
from .abi import Code
from .long_words import hear, say

RESULT_MOST = 64 << 10
_SLICE_MS = 2_000  # so often those that wait look where the others stand
_AT_END = "at the end of its script"
_NEWEST = "newest"  # of the places where ranks stand


def pickled(name: str, result: Any) -> bytes:
    """What a section gives, as it is kept. Refused by name where it cannot be, or is too large."""
    try:
        data = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise Error(f"the result of run.do({name}) cannot be pickled ({error}): return numbers or texts, and keep the rest to yourself",
                    Code.INVALID_ARGUMENT) from error  # fmt: skip
    if len(data) > RESULT_MOST:
        raise Error(f"the result of run.do({name}) has {len(data):,} bytes, {RESULT_MOST:,} are kept at most: return what is needed to go on "
                    "(a number, a path), and write the rest to a file", Code.INVALID_ARGUMENT)  # fmt: skip
    return data


class Meeting:
    """The store of one generation, as ranks meet in it. What is told of a section is forgotten once all have done the next."""

    def __init__(self, agent: _core.Agent, generation: int) -> None:
        self._agent = agent
        self._store = agent.open_store(generation)
        self._here = ""
        self._section = self._section_before = ""
        self._said: list[str] = []  # of this rank's own in this section, and in the one before
        self._said_before: list[str] = []
        self._counted = 0  # of "done", when the newest section was

    # ---- words of any length ------------------------------------------------------------------------------------------

    def say(self, key: str, data: bytes) -> None:
        self._said += say(self._store.set, key, data)

    def hear(self, key: str, limit_ms: int) -> bytes:
        return hear(lambda part: self._store.get(part, limit_ms), key)

    def share(self, word: str, facts: Any, limit_ms: int) -> dict[int, Any]:
        """What all ranks say, by rank, as JSON has it. The first of them puts it together, what is alike once: words grow with the ranks, not with their
        square."""
        me, crew = self._agent.rank, self._agent.crew
        mine = json.dumps(facts).encode()
        if me != crew[0]:
            self.say(f"{word}/{me}", mine)
        else:
            of: dict[bytes, list[int]] = {}
            for rank in crew:
                of.setdefault(mine if rank == me else self.hear(f"{word}/{rank}", limit_ms), []).append(rank)
            self.say(f"{word}/all", json.dumps([[text.decode(), ranks] for text, ranks in of.items()]).encode())
        return {rank: json.loads(text) for text, ranks in json.loads(self.hear(f"{word}/all", limit_ms)) for rank in ranks}

    # ---- a section ----------------------------------------------------------------------------------------------------

    def enter(self, section: str) -> None:
        """Ranks that are in different ones are told so while they wait."""
        if section == self._section:
            return  # once more, in the same generation
        self._section_before, self._section = self._section, section
        self._said_before, self._said = self._said, []
        self._go_to(f"in run.do of {section}")

    def leave(self) -> None:
        """Behind all of them. Who is in a further one by then, or comes to it, would wait in its collectives for ever."""
        if self._here != _AT_END:
            self._go_to(_AT_END)

    def describe_leavers(self) -> str:
        """For an error of the script's own outside of sections, and for a collective that failed because others are behind all of theirs."""
        if not self._store.check(_NEWEST, _SLICE_MS) or self._store.get(_NEWEST, _SLICE_MS).decode() != _AT_END:
            return ""
        left = [rank for rank in self._agent.crew if self._place_of(rank) == _AT_END]
        return f": rank {', '.join(map(str, left))} stands {_AT_END}" if left else ""

    def _place_of(self, rank: int) -> str:
        key = f"where/{rank}"
        return self._store.get(key, _SLICE_MS).decode() if self._store.check(key, _SLICE_MS) else self._here

    def _go_to(self, here: str) -> None:
        """The first rank that goes on from where all have been says to where; the others come there too, whatever they then do in it."""
        last, self._here = self._here, here
        self._store.set(f"where/{self._agent.rank}", here.encode())
        if self._store.compare_set(_NEWEST, last.encode(), here.encode(), _SLICE_MS) != here.encode():
            self._refuse(self._elsewhere(last))

    def tell_result(self, result: bytes) -> None:
        """Of the one rank that does it."""
        self.say(f"{self._section}/result", result)

    def hear_result(self) -> bytes:
        return self._awaited(lambda limit: self.hear(f"{self._section}/result", limit))

    def agree(self, digest: bytes, wish: bool) -> tuple[bool, bool]:
        """Waits until all ranks have done it. Whether their results differ, and whether any of them had the wish."""
        key, world = self._section, len(self._agent.crew)
        differs = self._store.compare_set(f"{key}/digest", b"", digest, _SLICE_MS) != digest
        # One sum for all sections, whose digits say how many were done, had the wish, and differed.
        counted = self._store.add("done", 1 + (world + 1) * (wish + (world + 1) * differs), _SLICE_MS)
        done, wishes, different = _digits(counted - self._counted, world + 1)
        if done == world:
            self._counted = counted
            self._store.set(f"{key}/go", b"%d %d %d" % (counted, different, wishes))
            for word in ("digest", "go") if self._section_before else ():
                self._store.delete(f"{self._section_before}/{word}", _SLICE_MS)
        else:
            said = self._awaited(lambda limit: self._store.get(f"{key}/go", limit))
            self._counted, different, wishes = map(int, said.split())
        for mine in self._said_before:
            self._store.delete(mine, _SLICE_MS)
        self._said_before = []
        return different > 0, wishes > 0

    def swap(self, result: bytes) -> tuple[int, bytes]:
        """The rank before this one, and its result, where they differ."""
        before = self._agent.crew[self._agent.number - 1]
        self.say(f"{self._section}/of/{self._agent.rank}", result)
        return before, self._awaited(lambda limit: self.hear(f"{self._section}/of/{before}", limit))

    def _awaited(self, ask: Callable[[int], bytes]) -> bytes:
        """In slices, between which this rank looks where the others stand."""
        elsewhere = ""
        while True:
            try:
                return ask(_SLICE_MS)
            except Error as error:
                if error.code != Code.DEADLINE_EXCEEDED:
                    raise
            self._refuse(elsewhere)  # also after one more slice, so it is not that this rank had yet to hear that all are done
            elsewhere = self._elsewhere()

    def _refuse(self, elsewhere: str) -> None:
        if elsewhere:
            raise Error(elsewhere, Code.FAILED_PRECONDITION)

    def _elsewhere(self, *right: str) -> str:
        """Where another rank stands, if that is none of the right places."""
        for rank in self._agent.crew:
            there = self._place_of(rank)
            if there not in (self._here, *right):
                return f"rank {self._agent.rank} stands {self._here}, rank {rank} {there}: all ranks call the same sections in the same order"
        return ""


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _digits(number: int, base: int) -> tuple[int, int, int]:
    return number % base, number // base % base, number // base**2
