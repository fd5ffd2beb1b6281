"""The registered objects of a rank: what they are at a step's gate, at its end, and before the next; and how they are put back.

At the gate the bytes go to the partners (the engine's mirror). What follows an update in its step (a scheduler, an average, a scale) changes
objects once more: at the step's end those that have changed are taken again. A rank that is lost or thrown out between the two has only
what its partners got at the gate. Of objects that all ranks have alike the others have the newer state: they tell it. Of its own the change
is lost, unless `after` functions make it again, and the run is told so (`note_inexact`).

Threads: the trainer's. Errors: as `load_state_dict` of what is registered raises them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import _core
from .pickled import Pickling
from .program import Program
from .sections import digest_of
from .take_over import Door
from .terms import Codec, Encoder
from .values import Values
from .variables import Variable

PROGRAM = "program"  # the name under which the record travels with them
_TOLD_MOST = 16 << 20  # bytes of one object that go over the control plane


Way = tuple[int, Door | None]  # kintsugi_take_over's number, and a function where it needs one


class OfStep(NamedTuple):
    """An object at the step at which all meet: a digest of what it was at the gate, and what it was at the step's end."""

    at_gate: str
    end: bytes


class _Place(NamedTuple):
    """Where the script was on its own, behind `step`."""

    step: int
    data: dict[str, bytes]
    variables: dict[str, Any]  # which objects they were


class Objects:
    """By name. `note_inexact` is told of each change that could not be kept."""

    def __init__(self, agent: _core.Agent, program: Program, pickling: Pickling, note_inexact: Callable[[str], object]) -> None:
        self._agent = agent
        self._program = program
        self._pickling = pickling
        self._note_inexact = note_inexact
        self._things: dict[str, Codec | Values] = {}
        self._ways: dict[str, Way] = {}  # how each goes on with other ranks
        self._after: list[Callable[[int], object]] = []
        self._made_again: dict[str, Callable[[bytes], object]] = {}
        self._gate: tuple[int, dict[str, bytes]] = (0, {})
        self._end: tuple[int, dict[str, bytes]] | None = None  # of the newest step that this rank has ended
        self._place: _Place | None = None  # as the script had made them behind the newest step
        self._iteration: _Place | None = None  # as the script's iteration at hand began
        self._told: dict[str, tuple[str, bytes]] = {}  # by others: digest at the gate, and the newer bytes
        self._not_told: set[str] = set()  # what has changed on another rank, and is not alike, or nobody has any more
        self._newest_put: dict[str, bytes] = {}
        self._of_step: dict[str, OfStep] = {}  # of the one at which all met last
        self.loaders_of_step: dict[int, Any] = {}

    def __iter__(self) -> Any:
        return iter(self._things)

    def __contains__(self, key: str) -> bool:
        return key in self._things

    def things(self) -> Iterable[Codec | Values]:
        return self._things.values()

    def add(self, key: str, thing: Codec | Values, way: Way = (0, None)) -> None:
        self._things[key], self._ways[key] = thing, way

    def exchange(self, key: str, thing: Codec | Values) -> None:
        self._things[key] = thing

    def way(self, key: str) -> Way:
        return self._ways[key]

    def add_after(self, function: Callable[[int], object]) -> None:
        self._after.append(function)

    def make_again(self, key: str, function: Callable[[bytes], object]) -> None:
        """function(state of `key`), where others have changed `key` behind the gate, and this process has not come there: what goes with
        that change and is a rank's own."""
        self._made_again[key] = function

    # ---- taken --------------------------------------------------------------------------------------------------------

    def put_at_gate(self, step: int) -> None:
        now = self._now()
        self._gate = step, now
        for key, data in now.items():
            self._put(key, step, data)
        self._agent.put_object(PROGRAM, step, self._pickling.bytes_of(PROGRAM, self._program))

    def put_at_end(self, step: int) -> None:
        """The step is over on this rank."""
        for function in self._after:
            function(step)
        self._refresh(step)

    def put_program(self, step: int) -> None:
        """A section is committed, or a loop has ended behind `step`: what a newcomer must know."""
        self._agent.put_object(PROGRAM, step, self._pickling.bytes_of(PROGRAM, self._program))
        self._agent.refresh_objects(step)

    def note_place(self, step: int) -> None:
        """Behind `step` the script was on its own: what it has changed there is made again by nobody but newcomers."""
        self._place = self._place_behind(step)

    def note_iteration(self, step: int) -> None:
        """Behind `step` the script begins an iteration, which as a whole is made again where its step is void."""
        self._place = self._iteration = self._place_behind(step)

    def restore_iteration(self, step: int) -> None:
        """What the script has changed behind a block whose step is void: the iteration is made again from its beginning."""
        if self._iteration is None or self._iteration.step != step:
            return
        now = self._now()
        self._return_to(self._iteration, [key for key, data in self._iteration.data.items() if now[key] != data])

    def return_to_iteration(self) -> None:
        """What the script does until the step's end is made again from the beginning of its iteration."""
        self._place = self._iteration

    def changes_since_place(self) -> bytes:
        """Of the section that began there: what a newcomer that passes by it must put in place. Empty: nothing."""
        assert self._place is not None
        before = self._place.data
        changed = {key: data for key, data in self._now().items() if before.get(key) != data}
        return pickle.dumps({key: data if fits(data) else None for key, data in changed.items()}) if changed else b""

    def apply(self, changes: bytes, rank: int, section: str, arriving: bool) -> None:
        """A section is passed by. What a newcomer does before it has come to where the run stands is about variables alone."""
        for key, data in (pickle.loads(changes) if changes else {}).items():
            if arriving and not self._is_variable(key):
                continue
            if data is None:
                self._note_inexact(f"object '{key}' of rank {rank}, changed in run.do ({section})")
            elif arriving:
                self.arrive_at({key: data})
            else:
                self._load_one(key, data)

    # ---- variables ----------------------------------------------------------------------------------------------------

    def variables(self) -> dict[str, bytes]:
        return {key: self._pickling.bytes_of(key, thing) for key, thing in self._things.items() if isinstance(thing, Variable)}

    def variables_in(self, changes: bytes) -> bytes:
        """Of a section's changes what a newcomer needs on its way."""
        kept = {key: data for key, data in pickle.loads(changes).items() if self._is_variable(key)}
        return pickle.dumps(kept) if kept else b""

    def arrive_at(self, values: dict[str, bytes]) -> None:
        """A newcomer's variables, on its way to where the run stands."""
        at_first = {key: thing.state_dict() for key, thing in self._things.items() if isinstance(thing, Variable)}
        for key, data in values.items():
            thing = self._things[key]
            assert isinstance(thing, Variable)
            thing.arrive_at(pickle.loads(data), sum(one is at_first[key] for one in at_first.values()) > 1)

    def _is_variable(self, key: str) -> bool:
        return isinstance(self._things[key], Variable)

    def _refresh(self, step: int) -> None:
        gate = self._gate[1]
        now = self._now()
        changed = [key for key, data in now.items() if gate.get(key) != data]
        if changed:
            self._program.note_ended(step, {key: _hex(gate[key]) for key in changed})
            for key in changed:
                self._put(key, step, now[key])
            self.put_program(step)
        self._end = step, now

    def _put(self, key: str, step: int, data: bytes) -> None:
        if self._newest_put.get(key) is data:
            self._agent.keep_object(key, step)
        else:
            self._agent.put_object(key, step, data)
            self._newest_put[key] = data

    def _now(self) -> dict[str, bytes]:
        return {key: self._pickling.bytes_of(key, thing) for key, thing in self._things.items()}

    def _place_behind(self, step: int) -> _Place:
        return _Place(step, self._now(), {key: thing.state_dict() for key, thing in self._things.items() if isinstance(thing, Variable)})

    # ---- told at an incident ------------------------------------------------------------------------------------------

    def changes_behind_gate(self, step: int) -> dict[str, Any] | None:
        """What of this rank changed between the gate and the end of `step`: digests then and now. None: it has not ended it."""
        if self._end is None or self._end[0] != step or self._gate[0] != step:
            return None
        gate, end = self._gate[1], self._end[1]
        known = self._program.changed_behind_gate(step)  # also where the run has met there since
        return {key: [known.get(key) or _hex(gate[key]), _hex(data)] for key, data in end.items() if key in known or gate[key] != data}

    def end_bytes(self, key: str) -> bytes:
        assert self._end is not None
        return self._end[1][key]

    def learn(self, told: dict[str, tuple[str, bytes]], own: set[str]) -> None:
        """`told`: what the others have alike, newer than at the gate. `own`: what changed on them and is not alike."""
        self._told, self._not_told = told, own

    # ---- put back -----------------------------------------------------------------------------------------------------

    def put_back(self, step: int, rank: int, level: Callable[[dict[str, Any], dict[str, bytes]], None], is_own: bool = True) -> bool:
        """All ranks go on behind `step`. False: the script is where it was, and nothing is put anew. `level`: given the record and the objects that were
        kept, lets `learn` know what other ranks have of the step that this one lacks. Not `is_own`: what was kept is that of another rank, of which these
        are to be made (worlds.py)."""
        self._newest_put.clear()  # the engine has put back others
        for key, thing in self._things.items() if self._gate[1] else ():
            if isinstance(thing, Encoder) and (missed := thing.missed()):
                self._note_inexact(f"object '{key}' of rank {rank}, about step {step}: {missed}")
        kept = at_gate = {key: self._agent.get_object(key) for key in self._things}
        record = self._agent.get_object(PROGRAM)
        program = pickle.loads(record)
        level(program, kept)
        if self._place is not None and self._place.step == step:
            self._return_to(self._place, self._things)  # but not the record, which knows more by now
            self._told, self._not_told = {}, set()
            self._note_step(step, program, at_gate, kept)
            return False
        if is_own and step > 0 and program["ended"] != step and (self._end is None or self._end[0] != step):
            kept = self._behind_gate(step, rank, kept)
        for key, data in kept.items():
            self._put(key, step, data)
        self._agent.put_object(PROGRAM, step, record)
        if is_own:
            self._load(kept)
        self._program.load_state_dict(program)
        if is_own and program["ended"] != step and (changed := [key for key, data in kept.items() if at_gate[key] != data]):
            self._program.note_ended(step, {key: _hex(at_gate[key]) for key in changed})
            self.put_program(step)  # the engine, too, is to have what followed the gate
        self._gate, self._end, self._place = (step, dict(kept)), (step, dict(kept)), None
        self._told, self._not_told = {}, set()
        self._note_step(step, program, at_gate, kept)
        return True

    def _note_step(self, step: int, program: dict[str, Any], at_gate: dict[str, bytes], kept: dict[str, bytes]) -> None:
        before = program["ended_keys"] if program["ended"] == step else {}
        self.loaders_of_step = program["loaders"]
        self._of_step = {key: OfStep(before.get(key) or _hex(at_gate[key]), data) for key, data in kept.items()}

    def of_step(self, key: str) -> OfStep:
        return self._of_step[key]

    def now(self, key: str) -> bytes:
        return self._pickling.bytes_of(key, self._things[key])

    def thing(self, key: str) -> Codec | Values:
        return self._things[key]

    def load_one(self, key: str, data: bytes) -> None:
        self._load_one(key, data)

    def go_on_as_they_are(self, step: int) -> None:
        """Among other ranks they are others from here on: as such they are put away, as those of `step`."""
        now = self._now()
        for key, data in now.items():
            self._put(key, step, data)
        self._gate, self._end = (step, now), (step, dict(now))
        if self._iteration is not None and self._iteration.step == step:
            self._iteration = self._place_behind(step)
        if self._place is not None and self._place.step == step:
            self._place = self._place_behind(step)
        self._program.note_ended(step, {})
        self.put_program(step)

    def put_back_end(self) -> None:
        """As at the end of the newest step: a newcomer has come to where its script stood then."""
        assert self._end is not None
        now = self._now()
        for key, data in self._end[1].items():
            if now[key] != data:  # the script has moved it on its way
                self._load_one(key, data)

    def _behind_gate(self, step: int, rank: int, kept: dict[str, bytes]) -> dict[str, bytes]:
        """The step was cut off here, or this process is new: what followed its gate, as far as anybody knows it."""
        newer = {key: data for key, (digest, data) in self._told.items() if key in kept and kept[key] != data and _hex(kept[key]) == digest}
        again = [(function, newer[key]) for key, function in self._made_again.items() if key in newer]
        if self._after or again:
            self._load(kept)
            for function in self._after:
                function(step)
            for make, state in again:
                make(state)
            made = self._now()
        else:
            made = dict(kept)
        made.update(newer)
        for key, (_, data) in self._told.items():
            if key in kept and key not in newer and kept[key] != data and made[key] == kept[key]:
                self._note_inexact(f"object '{key}' of rank {rank}, step {step}")
        for key in self._not_told:
            if key in kept and made[key] == kept[key]:
                self._note_inexact(f"object '{key}' of rank {rank}, step {step}")
        return made

    def _load(self, kept: dict[str, bytes]) -> None:
        for key in self._things:
            self._load_one(key, kept[key])

    def _return_to(self, place: _Place, keys: Iterable[str]) -> None:
        for key in keys:
            thing = self._things[key]
            if isinstance(thing, Variable):
                thing.return_to(place.variables[key], pickle.loads(place.data[key]))
            else:
                self._load_one(key, place.data[key])

    def _load_one(self, key: str, data: bytes) -> None:
        thing = self._things[key]
        if isinstance(thing, Values):
            thing.decode(data)
        else:
            thing.load_state_dict(pickle.loads(data))


def fits(data: bytes) -> bool:
    return len(data) <= _TOLD_MOST


def _hex(data: bytes) -> str:
    return digest_of(data).hex()
