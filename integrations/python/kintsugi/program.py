"""Where a script stands, as data: which of its loops are over, and what its sections gave.

A process that takes a lost one's place runs the script from the top. What its run has done already it passes by: loops that ended before
the step it joins at, and sections, whose results are recorded here. The record travels with the rank's objects and is in checkpoints.

Sections are named by their function and by where they stand: outside of loops by how many loops came before ("save, after loop 1, number 0"),
within one by the step that its iteration makes ("evaluate, iteration 10, number 0"). Where a step is made again its iteration begins again, with the same names. Those within
iterations are needed for as long as a newcomer may join there; the others for good.

Threads: none; pure. Errors: Error where a newcomer's script goes another way than those of the others.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ._errors import Error
from .abi import Code

Variables = dict[str, bytes]  # the script's own, by name (variables.py)
Numbers = range  # of a loop's iterations
Begun = int | None | Numbers  # what a loop was begun with: the epoch of a pass, or the numbers of its iterations


@dataclass(frozen=True)
class Recorded:
    step: int  # the iteration's, or the one behind which it stands: a newcomer that joins at a later one needs it no more
    behind: int  # the newest that was committed then: less by one where it stands before its iteration's step
    result: bytes
    lasting: bool  # outside of iterations
    changes: bytes = b""  # what it changed in registered objects, for as long as a newcomer may come by it


class Program:
    """The record of one rank, and where its process is in it."""

    def __init__(self) -> None:
        self._start: Variables = {}  # as they were where the run began
        self._begun_with: list[Begun] = []  # by loop
        self._crew: list[int] | None = None  # the ranks whose objects stand beside this record; None: those that take part (take_over)
        self._ends: list[tuple[int, Variables]] = []  # the step at which each loop ended, in the order of the script
        self._at_iterations: dict[int, Variables] = {}  # as they began: the one at hand, and the one before
        self._lasting: dict[str, Recorded] = {}  # sections outside of iterations, and those within
        self._passing: dict[str, Recorded] = {}
        self._whole: set[str] = set()  # lasting ones that have all of their changes
        self._past: bytes | None = None  # start, loops and lasting sections as they travel: a step does not cost more as they become many
        self.left_out: tuple[int, ...] = ()  # steps that are empty, since their data was to blame; also those that the run has yet to come to
        self._ended = 0  # the newest step whose objects were taken at its end, not at its gate; which had changed between
        self._ended_keys: dict[str, str] = {}
        self._loaders: dict[int, Any] = {}  # by loop: state of what it walks, of the one under way and the one before
        self._rests: dict[str, Any] = {}  # by name: state of what no loop walks now, as the newest that did had left it
        self._begun = 0  # loops that this process has begun, and whether it is in the last of them
        self._in_loop = False
        self._iteration = 0  # the step that it makes
        self._number = 0  # of the next section here

    # ---- what travels -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        if self._past is None:
            self._past = pickle.dumps({"start": self._start, "begun_with": self._begun_with, "ends": self._ends, "sections": _plain(self._lasting), "crew": self._crew,
                                       "rests": self._rests})  # fmt: skip
        return {"past": self._past, "iterations": dict(self._at_iterations), "sections": _plain(self._passing), "loaders": self._loaders,
                "left_out": self.left_out, "ended": self._ended, "ended_keys": self._ended_keys}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Where this process is in the script is not changed by it."""
        past = pickle.loads(state["past"]) if "past" in state else state  # of a version that pickled it anew with each step
        self._start, self._begun_with, self._ends = past["start"], list(past["begun_with"]), list(past["ends"])
        self._at_iterations, self._loaders = dict(state["iterations"]), dict(state["loaders"])
        self._ended, self._ended_keys = state["ended"], state["ended_keys"]
        self.left_out = tuple(state.get("left_out", ()))
        self._crew, self._rests = past.get("crew"), dict(past.get("rests", {}))
        self._take({name: Recorded(*kept) for name, kept in {**past["sections"], **state["sections"]}.items()})

    @staticmethod
    def take_over(saved: Mapping[int, dict[str, Any]], crew: list[int]) -> dict[str, Any]:
        """For a run with other ranks (kintsugi.TakeOver): as rank 0 had it, and of what loops walk what all had come to. The objects that stand beside it
        are those of the ranks that go on with it, `crew`."""
        first = saved[min(saved)]
        past = pickle.loads(first["past"]) if "past" in first else first
        if past.get("crew") != crew:
            first = {**first, "past": pickle.dumps({**past, "crew": None, "rests": {}})}
        return {**first, "loaders": Program.loaders_of_all([saved[rank]["loaders"] for rank in sorted(saved)])}

    @staticmethod
    def loaders_of_all(of_each: list[dict[int, Any]]) -> dict[int, Any]:
        """What loops walk, as all ranks had come to; where they have gone on among others since, as those had."""
        first = of_each[0]
        return {loop: noted if isinstance(noted, list) else [one[loop] for one in of_each] for loop, noted in first.items()}

    def note_ended(self, step: int, changed: dict[str, str]) -> None:
        """What changed between its gate and its end, with the digests at the gate."""
        self._ended, self._ended_keys = step, changed

    def changed_behind_gate(self, step: int) -> dict[str, str]:
        """As noted: digests at the gate. Nothing: of another step nothing is known."""
        return self._ended_keys if self._ended == step else {}

    @property
    def crew(self) -> list[int] | None:
        return self._crew

    def go_on_among(self, crew: list[int], loaders: dict[int, Any] | None = None) -> None:
        """Other ranks take part from here on. `loaders`: what loops walk, as all ranks had come to."""
        if crew != self._crew:
            self._rests = {}  # as they were divided among others
        self._crew, self._past = crew, None
        if loaders is not None:
            self._loaders = loaders

    # ---- loops --------------------------------------------------------------------------------------------------------

    @property
    def in_loop(self) -> bool:
        return self._in_loop

    def begin_loop(self, begun: Begun, replaces: bool) -> tuple[int, Begun]:
        """The number of the loop that begins, and what the run has begun it with: a process that comes later may have loaded a snapshot which the
        script has written since. Numbers are those of the run, but that one that resumes may go further. With another epoch than the others it is
        refused by name: the script has it already."""
        known = self._begun_with[self._begun] if self._begun < len(self._begun_with) else begun
        if isinstance(known, range) and isinstance(begun, range):
            begun = known if replaces else range(known.start, begun.stop, known.step)
        elif known != begun:
            raise Error(f"loop {self._begun} was begun {_described(known)}, and this process, which goes on with that run, comes to it {_described(begun)}: it "
                        "must begin where the run began, though a snapshot that was written since says otherwise. Write "
                        "`for epoch in run.do(range, first, epochs):`", Code.FAILED_PRECONDITION)  # fmt: skip
        self._begun_with[self._begun :] = [begun, *self._begun_with[self._begun + 1 :]]
        self._past = None
        self._begun += 1
        self._in_loop = True
        return self._begun - 1, begun

    def leave_loop(self) -> None:
        """It is over, or passed by."""
        self._in_loop = False
        self._number = 0

    def end_of(self, loop: int) -> int | None:
        """The step at which it ended; None: it has not, as far as is recorded."""
        return self._ends[loop][0] if loop < len(self._ends) else None

    def base_of(self, loop: int) -> int | None:
        """The step at which it began, which is where the one before ended; None: not known."""
        return 0 if loop == 0 else self.end_of(loop - 1)

    def record_end(self, loop: int, step: int, variables: Variables) -> None:
        self._past = None
        del self._ends[loop:]
        self._ends += [(step, variables)] * (loop + 1 - len(self._ends))

    def variables_behind(self, loop: int) -> Variables:
        """For who passes it by: as they were there; none where that is not known."""
        return self._ends[loop][1] if loop < len(self._ends) else {}

    def note_start(self, variables: Variables) -> None:
        self._start = variables
        self._past = None

    @property
    def variables_at_start(self) -> Variables:
        return self._start

    def note_variables(self, variables: Variables) -> None:
        """As the iteration at hand begins. A newcomer may join at the one before."""
        before = self._iteration - 1
        self._at_iterations = {step: kept for step, kept in self._at_iterations.items() if step == before} | {self._iteration: variables}

    def variables_of_iteration(self) -> Variables:
        return self._at_iterations.get(self._iteration, {})

    def note_loader(self, state: Any) -> None:
        """Of the loop under way. A newcomer may still join at the end of the one before, and walks on from there. A list: of each rank that
        saved, where those were others than there are."""
        loop = self._begun - 1
        self._loaders = {known: kept for known, kept in self._loaders.items() if known == loop - 1} | {loop: state}

    def note_rests(self, states: dict[str, Any]) -> None:
        """Of what the loop under way does not walk, and later ones may."""
        if any(name not in self._rests or self._rests[name] is not state for name, state in states.items()):
            self._rests, self._past = {**self._rests, **states}, None

    def has_rest(self, name: str) -> bool:
        return name in self._rests

    def rest_of(self, name: str) -> Any:
        return self._rests[name]

    @property
    def loader(self) -> Any:
        """What was noted in the loop that this process is in."""
        return self._loaders.get(self._begun - 1)

    def note_left_out(self, step: int) -> None:
        self.left_out = tuple(sorted({*self.left_out, step}))

    # ---- sections -----------------------------------------------------------------------------------------------------

    def begin_iteration(self, step: int) -> None:
        """For the first time, or again."""
        self._iteration, self._number = step, 0

    def next_section(self, name: str) -> str:
        self._number += 1
        where = f"iteration {self._iteration}" if self._in_loop else f"after loop {self._begun}"
        return f"{name}, {where}, number {self._number - 1}"

    def recorded(self, section: str) -> Recorded | None:
        return self._passing.get(section) or self._lasting.get(section)

    def record(self, section: str, step: int, result: bytes, changes: bytes) -> Recorded:
        """`step`: the newest that is committed."""
        kept = Recorded(self._iteration if self._in_loop else step, step, result, not self._in_loop, changes)
        self._add(section, kept)
        return kept

    def take_record(self, section: str, kept: Recorded) -> None:
        """Of another rank."""
        if self.recorded(section) is None:
            self._add(section, kept)

    def sections_since(self, step: int) -> dict[str, Recorded]:
        """What a newcomer at this step may have missed: not what came behind a later one, from which the run has gone back."""
        return {name: kept for name, kept in self._all().items() if kept.step >= step >= kept.behind}

    def keep_since(self, step: int, names: set[str]) -> None:
        """Of what stands behind `step` these alone."""
        self._take({name: kept for name, kept in self._all().items() if kept.step < step or name in names})

    def forget_before(self, step: int, needed: Callable[[bytes], bytes]) -> None:
        """A newcomer joins at `step` at the earliest: of what came before it passes by what is outside of iterations. `needed`: of the
        changes there."""
        self._passing = {name: kept for name, kept in self._passing.items() if kept.step >= step}
        for name in [name for name in self._whole if self._lasting[name].step < step]:
            self._lasting[name] = replace(self._lasting[name], changes=needed(self._lasting[name].changes))
            self._whole.remove(name)
            self._past = None

    def forget_after(self, step: int, crew: list[int]) -> None:
        """The run goes on from an older step: what came behind it has not happened. What was to be left out there still is, but among other ranks than
        `crew`, for whom it comes in other steps."""
        self._take({name: kept for name, kept in self._all().items() if kept.behind <= step})
        self._ends = [end for end in self._ends if end[0] <= step]
        if self._crew != crew:
            self.left_out = tuple(one for one in self.left_out if one <= step)

    def _all(self) -> dict[str, Recorded]:
        return {**self._lasting, **self._passing}

    def _take(self, sections: Mapping[str, Recorded]) -> None:
        """These, and no others."""
        self._lasting, self._passing, self._whole, self._past = {}, {}, set(), None
        for name, kept in sections.items():
            self._add(name, kept)

    def _add(self, name: str, kept: Recorded) -> None:
        if not kept.lasting:
            self._passing[name] = kept
            return
        self._lasting[name] = kept
        self._past = None
        self._whole.discard(name)
        if kept.changes:
            self._whole.add(name)


def _plain(sections: Mapping[str, Recorded]) -> dict[str, Any]:
    return {name: (kept.step, kept.behind, kept.result, kept.lasting, kept.changes) for name, kept in sections.items()}


def _described(begun: Begun) -> str:
    return f"over {begun}" if isinstance(begun, range) else f"with epoch {begun}"
