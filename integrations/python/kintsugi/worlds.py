"""A run that goes on with other ranks: what a script offers, and how its objects go on among those that stay and those that come.

A rank is a seat, which it keeps; its number is its place among those that take part (runtime/core/crew.h), and a script knows numbers alone. Where ranks
have left for good, or come to the run, the objects of the step at which all meet are still those of the ranks that there were. They go on as they say of a
run that resumes with other ranks (take_over.py), by number: so the run is, to the bit, one that was saved at that step and resumed in that world.

One rank that was there before, the lowest, is told what the others have; what a lost rank had it knows as its partner. It tells all, so that all go by
the same. An attempt may fail behind that: until all have gone on, what was told is kept, and the next one begins with it. Who comes is given objects of a
rank that stays by the library (Agent::HandOverObjects), and has nothing to tell.

Threads: the trainer's, in REBUILD and ROLLBACK. Errors: Error, with the object's name.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import _core
from ._errors import Error
from .abi import Code, TakeOver
from .news import News
from .objects import PROGRAM, Objects
from .program import Program
from .sections import Meeting, digest_of
from .slices import Held, Slice, all_slices, refuse_halves, refuse_uneven
from .terms import GoesOn

_LIMIT_MS = 60_000
_MOST_BYTES = 256 << 20


def _keeper(lost: int, told: dict[int, dict[str, Any]]) -> int:
    """Who tells what the lost rank had: the lowest of its partners."""
    return min(rank for rank, facts in told.items() if lost in facts["knows"])


class _Own(NamedTuple):
    """An object of one rank: digests of what it was at the step's gate and end, and what it is."""

    at_gate: str
    end: str
    data: bytes


class _Saved(NamedTuple):
    """What the ranks of `crew` had at `step`, by number; and the record of the first of them that was there."""

    step: int
    crew: list[int]
    objects: dict[str, dict[int, bytes]]
    loaders: dict[int, dict[int, Any]]
    program: bytes


class Worlds:
    """`inexact`: told of what could not be had."""

    def __init__(self, agent: _core.Agent, program: Program, objects: Objects, news: News, inexact: Callable[[str], object]) -> None:
        self._agent = agent
        self._program = program
        self._objects = objects
        self._news = news
        self._inexact = inexact
        self.offered: list[int] = []
        self._any = False  # number of ranks is offered
        self.slice: Slice = ()  # that this rank is of
        self.cuts_anew = False  # other ranks hold other pieces, which move there
        self.ran_in: list[int] = []  # who took part as this process last went on; none: it never did
        self.comes = False  # among others, without anything of its own
        self._lost: dict[tuple[int, int], dict[str, bytes]] = {}  # by step and rank: objects of those that have left
        self._saved: _Saved | None = None  # of a change that not all have gone on from

    # ---- as training begins -------------------------------------------------------------------------------------------

    def offer(self, worlds: Iterable[int] | None) -> None:
        most, self._any = self._agent.world_size, worlds is None
        sizes = list(range(1, most + 1)) if worlds is None else list(worlds)
        if any(type(size) is not int or size < 1 for size in sizes) or not sizes or min(sizes) > most:
            raise Error(f"run.offer(worlds={sizes}): numbers of ranks from 1 on, and one at least that is not above {most}", Code.INVALID_ARGUMENT)
        self.offered = sorted({size for size in sizes if size <= most})  # the run is never larger

    def begin(self, slice_: Slice, held: Held | None, cuts_anew: bool) -> None:
        """`slice_`: by number, the ranks that together hold one replica; `held`: by some of them alone. `cuts_anew`: they are all ranks, whatever their
        number."""
        size, most = len(slice_), self._agent.world_size
        self.cuts_anew = cuts_anew
        if self._any and (size < most or cuts_anew):
            self.offered = [world for world in self.offered if (world > 1 if cuts_anew else world % size == 0)]
        if not cuts_anew:
            refuse_halves(size, self.offered, most, held)
        elif 1 in self.offered:
            raise Error(f"run.offer: worlds of {', '.join(map(str, self.offered))} ranks, and of one alone nobody could tell how its data is divided among more: offer "
                        "two ranks or more where a replica takes all", Code.FAILED_PRECONDITION)  # fmt: skip
        for key in self._objects:
            way = self._objects.way(key)[0]
            if way == TakeOver.UNSAID:
                raise Error(f"run.offer: object '{key}' does not say how it goes on with fewer ranks: take_over={{'{key}': ...}} (\"rank-zero\" where all "
                            "ranks have the same)", Code.FAILED_PRECONDITION)  # fmt: skip
            if way == TakeOver.CELL:
                raise Error(f"run.offer: object '{key}' is one cell of a grid, which has a place for each rank: leave run.offer out", Code.FAILED_PRECONDITION)
        if cuts_anew:
            self._agent.offer_any_layout(self.offered)
        else:
            self.slice = self._seats(slice_)
            self._agent.offer_worlds([*self.slice], self.offered)
        self._agent.hand_over_objects()

    def facts(self, slice_: Slice) -> dict[str, Any]:
        """What is told to all, as JSON. `slice_`: as of now, by number."""
        if self.offered and not self.cuts_anew and self._seats(slice_) != self.slice:
            raise Error(f"run.offer: the slice of rank {self._agent.rank} was {[*self.slice]}, and what is made anew among ranks {self._agent.crew} makes it "
                        f"{[*self._seats(slice_)]}: bytes would have to move, which they do not", Code.FAILED_PRECONDITION)  # fmt: skip
        return {"worlds": self.offered, "slice": self.slice, "cuts anew": self.cuts_anew, "ran in": self.ran_in}

    def _seats(self, numbers: Slice) -> Slice:
        crew = self._agent.crew
        return tuple(crew[number] for number in numbers)

    def compare(self, told: dict[int, dict[str, Any]], held: Iterable[Held]) -> None:
        """All ranks offer the same; whichever of them says so first says the same. And every slice holds all. `held`: by some ranks alone, by number."""
        offered = {rank: (words["worlds"], words["cuts anew"]) for rank, words in told.items()}
        first = min(offered)
        for rank in sorted(offered):
            if offered[rank] != offered[first]:
                one, other = (f"worlds of {', '.join(map(str, worlds))} ranks{', in which a replica takes all' if anew else ''}" if worlds else "none"
                              for worlds, anew in (offered[first], offered[rank]))  # fmt: skip
                raise Error(f"rank {first} offers {one}, rank {rank} {other} (run.offer): all ranks offer the same", Code.INVALID_ARGUMENT)
        if self.offered and not self.cuts_anew:
            slices = all_slices({rank: tuple(words["slice"]) for rank, words in told.items()})
            refuse_uneven(self._agent.rank, slices, (one._replace(holders=self._seats(one.holders)) for one in held))

    def note_coming(self, told: dict[int, dict[str, Any]]) -> None:
        """Whether this rank takes part from now on, where those who ran did so without it: what it has is to be made of what they have."""
        ran = [words["ran in"] for words in told.values() if words["ran in"]]
        self.comes = bool(ran) and all(self._agent.rank not in crew for crew in ran)

    # ---- at an incident -----------------------------------------------------------------------------------------------

    def note_lost(self, step: int) -> None:
        """In REBUILD: what is known of those that do not take part any more the library keeps until the partners of now are connected."""
        for rank in {*self.ran_in} - {*self._agent.crew}:
            if self.offered and (step, rank) not in self._lost:
                try:
                    self._lost[step, rank] = {key: self._agent.get_object_of(rank, key, step) for key in [*self._objects, PROGRAM]}
                except Error as error:
                    if error.code != Code.NOT_FOUND:
                        raise

    def go_on(self, step: int, generation: int) -> None:
        """In ROLLBACK, once this rank's objects are put back: they become those of the ranks that take part now."""
        if not self.offered:
            return
        me, crew = self._agent.rank, self._agent.crew
        self.note_lost(step)  # where all go back to a snapshot REPAIR has brought it
        meeting = self._news.meeting(generation)
        has = self._saved is not None and self._saved.step == step
        knows = [rank for at, rank in sorted(self._lost) if at == step]
        mine = {"crew": self._program.crew or crew, "has": has, "stayed": bool(self.ran_in), "comes": self.comes, "knows": knows}
        told = meeting.share("world", mine, _LIMIT_MS)
        having = [rank for rank in crew if told[rank]["has"]]
        if not having and not self._is_other(told):
            if self._program.crew is None:
                self._program.go_on_among(crew)
            return
        teller = having[0] if having else self._collector(told)
        if not having:
            of_lost = {rank: self._lost[step, rank] for rank in knows if me == _keeper(rank, told)}
            meeting.say(f"world/of/{me}", pickle.dumps({**self._own(), "lost": of_lost}))
            if me == teller:
                self._saved = self._collect(step, told[me]["crew"], meeting)
        if me == teller:
            assert self._saved is not None
            meeting.say("world/saved", pickle.dumps(tuple(self._saved)))
        self._saved = _Saved(*pickle.loads(meeting.hear("world/saved", _LIMIT_MS)))
        self._take(self._saved)

    def went_on(self) -> None:
        """All ranks have: what was before does not come back."""
        self.ran_in, self._saved, self._lost = self._agent.crew, None, {}

    def _is_other(self, told: dict[int, dict[str, Any]]) -> bool:
        """Whether what is put back is of another crew. A process that has just come has what its partners have."""
        if any(facts["comes"] for facts in told.values()):
            return True
        stayed = [facts for facts in told.values() if facts["stayed"]]
        if stayed:
            return any(facts["crew"] != self._agent.crew for facts in stayed)
        return any(len(facts["crew"]) != len(self._agent.crew) for facts in told.values())  # of a run that was saved by others its seats are not these

    def _collector(self, told: dict[int, dict[str, Any]]) -> int:
        stayed = [rank for rank in sorted(told) if told[rank]["stayed"]]
        crews = {tuple(told[rank]["crew"]) for rank in stayed}
        if len(crews) != 1:
            why = "no process is left that was there before" if not crews else f"ranks go on from {' and '.join(map(str, sorted(crews)))}"
            raise Error(f"the objects cannot go on among ranks {self._agent.crew}: {why}", Code.FAILED_PRECONDITION)
        return stayed[0]

    def _own(self) -> dict[str, Any]:
        objects = {}
        for key in self._objects:
            at_gate, end = self._objects.of_step(key)
            data = end if getattr(self._objects.thing(key), "GOES_ON_FROM_STEP", False) else self._objects.now(key)
            objects[key] = _Own(at_gate, digest_of(end).hex(), data)
        return {"objects": objects, "loaders": self._objects.loaders_of_step}

    def _collect(self, step: int, crew: list[int], meeting: Meeting) -> _Saved:
        here = {rank: pickle.loads(meeting.hear(f"world/of/{rank}", _LIMIT_MS)) for rank in self._agent.crew if rank in crew}
        known_to_any = {rank: objects for of_rank in here.values() for rank, objects in of_rank["lost"].items()}
        lost = {rank: known_to_any.get(rank) for rank in crew if rank not in here}
        if unknown := [rank for rank, known in lost.items() if known is None]:
            raise Error(f"the objects of rank {unknown[0]} at step {step} are known to nobody: those of the others cannot go on without it", Code.NOT_FOUND)
        alike: dict[bytes, bytes] = {}  # most are the same on all ranks, and travel once
        objects: dict[str, dict[int, bytes]] = {}
        for key in self._objects:
            own = {rank: of_rank["objects"][key] for rank, of_rank in here.items()}
            states = {rank: own[rank].data if rank in own else self._of_lost(key, rank, step, lost[rank] or {}, own) for rank in crew}
            objects[key] = {number: alike.setdefault(states[rank], states[rank]) for number, rank in enumerate(crew)}
        if (total := sum(map(len, alike))) > _MOST_BYTES:
            raise Error(f"the objects of {len(crew)} ranks have {total:,} bytes, {_MOST_BYTES:,} can go on among others at most", Code.RESOURCE_EXHAUSTED)
        loaders = {number: here[rank]["loaders"] if rank in here else pickle.loads((lost[rank] or {})[PROGRAM])["loaders"] for number, rank in enumerate(crew)}
        return _Saved(step, crew, objects, loaders, pickle.dumps(self._program.state_dict()))

    def _of_lost(self, key: str, rank: int, step: int, known: dict[str, bytes], own: dict[int, _Own]) -> bytes:
        """A partner knows it as it was at the gate: whoever had the same there knows what became of it."""
        data = known[key]
        if pickle.loads(known[PROGRAM])["ended"] == step:
            return data  # a snapshot has what became of it
        digest = digest_of(data).hex()
        became = {one.data for one in own.values() if digest in (one.at_gate, one.end)}
        if len(became) == 1:
            return became.pop()
        if became or any(digest_of(one.data).hex() != one.at_gate for one in own.values()):
            self._inexact(f"object '{key}' of rank {rank}, step {step}")
        return data

    def _take(self, saved: _Saved) -> None:
        crew, number = self._agent.crew, self._agent.number
        back = crew == saved.crew  # the attempt before was to go on without some who are here again
        for key in self._objects:
            thing, (way, function) = self._objects.thing(key), self._objects.way(key)
            states = saved.objects[key]
            if back or way == TakeOver.SAME_RANK:
                if number not in states:
                    raise Error(f"object '{key}' goes on where its rank does, and rank {number} had none", Code.NOT_FOUND)
                self._objects.load_one(key, states[number])
            elif isinstance(thing, GoesOn):
                self._objects.load_one(key, pickle.dumps(thing.go_on({at: pickle.loads(state) for at, state in states.items()})))
            elif way == TakeOver.RANK_ZERO:
                self._objects.load_one(key, states[0])
            elif function is not None:
                made = function(sorted(states.items()))
                if isinstance(made, str):
                    raise Error(f"object '{key}': {made}", Code.INTERNAL)
                self._objects.load_one(key, made)
        if self._agent.rank not in saved.crew:
            self._program.load_state_dict(pickle.loads(saved.program))  # as a process of a run that resumes has it
        of_each = [saved.loaders[at] for at in sorted(saved.loaders)]
        self._program.go_on_among(crew, of_each[number] if back else Program.loaders_of_all(of_each))
        self._objects.go_on_as_they_are(saved.step)
