"""A run that goes on with fewer ranks, and grows back (MindIO's ZIT).

| what | who says so |
|---|---|
| `downgrade` is offered | slices.py, of what all ranks have said and who is lost |
| `downgrade` | the scheduler, as its word on an incident |
| stopped and cleaned | every rank that is left, whose word this waits for |
| 201: who is left out | this; who still lives of these leaves |
| `zit_downgrade_rebuild` | the first incident of a new era of those that stay (place.py, journey.py) |
| `upgrade` | the scheduler, at any time |
| ready | processes of those that were left out, which stand aside once their trainings have raised ARF FINISH |
| stop, clean | an incident that nobody's fault begins |
| `zit_upgrade_rebuild`, `_repair`, `_rollback` | the first incident of an era of all ranks, where those that came back lack their state |

A rank that is lost before all have joined a new era is met by another one; from then on by Kintsugi, as in any other run.

Threads: the host's.
"""

from __future__ import annotations

import asyncio

from .codes import ISOLATED, MAY_DUMP, ONLY_EXIT, MindioError
from .elastic import CannotShrink
from .era import Era
from .log import LOGGER
from .place import Crew, Move, Place
from .run import Run
from .scheduler import Scheduler
from .slices import Slices


class Zit:
    """What is going on in one run."""

    def __init__(self, run: Run, scheduler: Scheduler, slices: Slices) -> None:
        self._run, self._ranks, self._scheduler, self._slices = run, run.ranks, scheduler, slices
        self._round = (0, 0)  # era and generation whose ranks are cleaned
        self._cleaned: dict[int, int | None] = {}
        self._up = ""  # the scheduler's parameters, once a growth is asked for
        self._moving = asyncio.Lock()  # one move after the other

    def ask_upgrade(self, param: str) -> None:
        """Raises MindioError."""
        if not self._slices.left_out:
            raise MindioError("'upgrade': all ranks take part: 'downgrade' comes first")
        self._up = param
        LOGGER.warning("upgrade: ranks %s are to come back", sorted(self._slices.left_out))
        self.try_to_grow()

    def on_cleaned(self, rank: int, era: int, generation: int, offset: int | None) -> None:
        if (era, generation) != self._round:
            self._round, self._cleaned = (era, generation), {}
        self._cleaned[rank] = offset
        self.look()

    def look(self) -> None:
        """Begins a move where all that are left are cleaned, or somebody was lost on the way into the era."""
        if self._slices.enabled and not self._run.is_over:
            self._run.host.begin(self._look())

    async def _look(self) -> None:
        async with self._moving:
            era, missing = self._run.missing()
            if era is None:
                return
            if era.move is not Move.NONE and not era.opened:
                if missing:
                    await self._redo(era)
                return
            word, waited_for = self._scheduler.word, self._ranks.unhurt
            if self._round[0] != era.number or not waited_for or not waited_for <= set(self._cleaned):
                return
            offset = next((offset for offset in self._cleaned.values() if offset is not None), None)
            if word == "downgrade":
                await self._shrink(era, offset)
            elif word == "upgrade":
                self._grow(era, offset)

    async def _shrink(self, era: Era, offset: int | None) -> None:
        run, slices = self._run, self._slices
        try:
            lost = self._ranks.known_faults()
            out = slices.without(lost) if era.opened else slices.all_without(lost)
        except CannotShrink as error:
            LOGGER.error("downgrade: %s", error)
            await self._scheduler.fail(MAY_DUMP if error.may_dump else ONLY_EXIT, f"downgrade: {error}", "downgrade")
            return
        if not run.is_current(era):
            return
        slices.left_out = out
        self._ranks.count_as_lost(out)
        await self._scheduler.tell_result(ISOLATED, "controller notify isolate ranks.", "downgrade")
        crew = Crew(set(range(self._ranks.world_size)) - out)
        run.move(era, Place(0, 0, crew, Move.SHRINK, offset, tuple(sorted(out)), (), slices.down))
        self.look()

    def try_to_grow(self) -> None:
        """Begins the incident in which all are stopped, where it is asked for and all are there."""
        out = self._slices.left_out
        if self._up and out and self._ranks.are_ready(out) and self._run.may_move() and self._scheduler.begin_agreed("upgrade"):
            self._run.step_out()

    def _grow(self, era: Era, offset: int | None) -> None:
        out, aside = self._slices.left_out, self._ranks.aside
        if not self._ranks.are_ready(out):
            LOGGER.warning("upgrade: processes of ranks %s are not all there any more: others are waited for", sorted(out))
            return
        self._scheduler.commit_agreed()
        self._run.move(era, Place(0, 0, Crew(range(self._ranks.world_size)), Move.GROW, offset, tuple(sorted(out)), (), self._up),
                       {rank: aside.pop(rank) for rank in out})
        self.look()

    async def _redo(self, era: Era) -> None:
        """Not all of the era's crew came: nothing of the client's was called there."""
        ranks, slices, offset = self._ranks, self._slices, era.place.offset
        if era.move is Move.SHRINK:
            ranks.count_as_lost(self._run.missing()[1])
            await self._shrink(era, offset)
            return
        holders = set(era.crew.ranks) - set(era.place.others)
        wanted = (holders | slices.left_out) - ranks.living
        try:
            slices.all_without(holders - ranks.living)
        except CannotShrink as error:
            await self._scheduler.fail(ONLY_EXIT, f"upgrade: {error}", "upgrade")
            return
        slices.left_out = slices.left_out | holders - ranks.living
        if ranks.are_ready(wanted):
            place = Place(0, 0, era.crew, Move.GROW, offset, tuple(sorted(slices.left_out)), (), era.place.param)
            self._run.move(era, place, {rank: ranks.aside.pop(rank) for rank in wanted})
            self.look()

    def on_mended(self, era: Era, moved: bool) -> None:
        """An incident is over; in it all have moved, if they had to."""
        if moved and era.move is Move.GROW:
            self._slices.left_out, self._up = set(), ""
        self.try_to_grow()
