"""What Kintsugi's controller says, and what follows for ranks and scheduler.

Threads: the era's watcher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kintsugi import _core

from .era import Era
from .log import LOGGER
from .place import Move
from .processes import send_away

if TYPE_CHECKING:
    from .master import Master

_PHASE, _NOTICE, _GIVEN_UP, _INCIDENT, _ENDED = 1, 2, 3, 4, 5


class Events:
    def __init__(self, master: Master) -> None:
        self._master, self._ranks = master, master.ranks

    def on_event(self, era: Era, event: _core.Event) -> None:
        if event.kind == _PHASE:
            LOGGER.info("phase %s, generation %d: %s", event.phase, event.generation, event.text)
            self._on_phase(era, event)
        elif event.kind == _NOTICE:
            LOGGER.info("rank %d: %s", era.crew.rank(event.rank), event.text)
        elif event.kind == _GIVEN_UP:
            rank = era.crew.rank(event.rank)
            LOGGER.warning("rank %d is given up: %s", rank, event.text)
            self._ranks.count_as_lost([rank])
            self._master.give_up(rank, event.text)
        elif event.kind == _INCIDENT:
            self._on_mended(era, event)
        elif event.kind == _ENDED:
            self._on_ended(era, event)

    def _on_mended(self, era: Era, event: _core.Event) -> None:
        rank = era.crew.rank(event.rank) if event.rank >= 0 else -1
        LOGGER.warning("rank %d: %s: mended by %s at step %d", rank, event.text, event.phase, event.step)
        self._master.switch.on_over()
        with self._ranks.lock:
            moved, era.pending = era.pending, False
            mended = self._ranks.take_mended(event.generation)
            told = mended if moved and era.move is Move.SHRINK else {}
        if not self._master.over:
            self._master.scheduler.on_repaired(event.phase, {rank: kind for rank, (kind, _) in sorted(told.items())})
        self._master.zit.on_mended(era, moved)

    def _on_ended(self, era: Era, event: _core.Event) -> None:
        if era.move is not Move.NONE and not era.opened:
            LOGGER.warning("era %d has ended before it was opened: %s", era.number, event.text)
            # Somebody did not come; one that is given up is gone in a moment.
            if self._master.missing()[1] or not self._ranks.living - set(self._ranks.known_faults()) >= set(era.crew.ranks):
                self._master.zit.look()
            else:
                self._master.end_all(f"the run could not go on with ranks {list(era.crew.ranks)}: {event.text}")
            return
        LOGGER.info("the run has ended with %d: %s", event.exit_code, event.text)
        self._master.switch.on_over()
        self._master.switch.stop()
        self._master.note_end()
        for peer in self._master.zit.take_all():
            send_away(peer, "the run has ended")
        self._ranks.broadcast({"do": "ended", "code": event.exit_code, "text": event.text})
        if not self._master.over:
            self._master.scheduler.on_ended(event.exit_code, event.text)

    def _on_phase(self, era: Era, event: _core.Event) -> None:
        with self._ranks.changed:
            if event.phase in ("CLEAN", "DUMP"):
                era.rungs[event.generation] = event.text if event.phase == "CLEAN" else "dump"
                self._ranks.changed.notify_all()
            era.opened = era.opened or event.phase == "RUNNING"
            counts = era.opened  # what goes wrong before is met by another era
        if event.phase == "LOCK" and (counts or era.move is Move.NONE):
            self._master.scheduler.on_incident()
