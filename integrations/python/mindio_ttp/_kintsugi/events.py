"""What Kintsugi's controller says, and what follows for ranks and scheduler.

Threads: the host's.
"""

from __future__ import annotations

from kintsugi import _core

from .era import Era
from .log import LOGGER
from .place import Move
from .run import Run
from .scheduler import Scheduler
from .switch import Switch
from .zit import Zit

_PHASE, _NOTICE, _GIVEN_UP, _INCIDENT, _ENDED = 1, 2, 3, 4, 5


class Events:
    def __init__(self, run: Run, scheduler: Scheduler, switch: Switch, zit: Zit) -> None:
        self._run, self._ranks, self._scheduler, self._switch, self._zit = run, run.ranks, scheduler, switch, zit

    async def on_event(self, era: Era, event: _core.Event) -> None:
        if event.kind == _PHASE:
            LOGGER.info("phase %s, generation %d: %s", event.phase, event.generation, event.text)
            await self._on_phase(era, event)
        elif event.kind == _NOTICE:
            LOGGER.info("rank %d: %s", era.crew.rank(event.rank), event.text)
        elif event.kind == _GIVEN_UP:
            rank = era.crew.rank(event.rank)
            LOGGER.warning("rank %d is given up: %s", rank, event.text)
            self._ranks.count_as_lost([rank])
            self._run.give_up(rank, event.text)
        elif event.kind == _INCIDENT:
            await self._on_mended(era, event)
        elif event.kind == _ENDED:
            await self._on_ended(era, event)

    async def _on_mended(self, era: Era, event: _core.Event) -> None:
        rank = era.crew.rank(event.rank) if event.rank >= 0 else -1
        LOGGER.warning("rank %d: %s: mended by %s at step %d", rank, event.text, event.phase, event.step)
        self._switch.migrates = False
        moved, era.pending = era.pending, False
        mended = self._ranks.take_mended(event.generation)
        told = mended if moved and era.move is Move.SHRINK else {}
        if not self._run.over:
            await self._scheduler.on_repaired(event.phase, {rank: kind for rank, (kind, _) in sorted(told.items())})
        self._zit.on_mended(era, moved)

    async def _on_ended(self, era: Era, event: _core.Event) -> None:
        if era.move is not Move.NONE and not era.opened:
            LOGGER.warning("era %d has ended before it was opened: %s", era.number, event.text)
            # Somebody did not come; one that is given up is gone in a moment.
            if self._run.missing()[1] or not self._ranks.living - set(self._ranks.known_faults()) >= set(era.crew.ranks):
                self._zit.look()
            else:
                self._run.end_all(f"the run could not go on with ranks {list(era.crew.ranks)}: {event.text}")
            return
        LOGGER.info("the run has ended with %d: %s", event.exit_code, event.text)
        self._run.ended = True
        self._switch.migrates = False
        self._switch.stop()
        self._run.dismiss_all("the run has ended")
        self._ranks.broadcast({"do": "ended", "code": event.exit_code, "text": event.text})
        if not self._run.over:
            await self._scheduler.on_ended(event.exit_code, event.text)

    async def _on_phase(self, era: Era, event: _core.Event) -> None:
        if event.phase in ("CLEAN", "DUMP"):
            era.rungs[event.generation] = event.text if event.phase == "CLEAN" else "dump"
        era.opened = era.opened or event.phase == "RUNNING"
        # What goes wrong before an era is opened is met by another one.
        if event.phase == "LOCK" and (era.opened or era.move is Move.NONE):
            await self._scheduler.on_incident()
