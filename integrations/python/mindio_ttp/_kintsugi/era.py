"""An era: one of Kintsugi's controllers in this process, and the crew under it.

Threads: its own watches the controller's events and hands them on; `end` any; all else the host's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kintsugi import _core

from .log import LOGGER
from .place import Move, Place

_PULL_MS = 50
_LEAVE_LIMIT = 5.0  # ranks that go on elsewhere hang up at once


class Era:
    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        """Of `place` all but the port. Raises RuntimeError where none is free."""
        self.core = _core.Controller(world_size=len(place.crew), **options)
        self.place = replace(place, port=self.core.port)
        self.crew = place.crew
        self.rungs: dict[int, str] = {}  # generation -> rung, from CLEAN or DUMP on
        self.opened = False  # all its ranks were there once: from then on the controller meets every fault
        self.pending = place.move is not Move.NONE  # the client's handlers of the move have yet to come
        self._over = threading.Event()
        self._ending = threading.Lock()
        self._ended = False

    @property
    def number(self) -> int:
        return self.place.era

    @property
    def move(self) -> Move:
        return self.place.move

    def watch(self, on_event: Callable[[Era, _core.Event], None], on_broken: Callable[[str], None]) -> None:
        def run() -> None:
            try:
                while not self._over.is_set():
                    event = self.core.next(_PULL_MS)
                    if event.kind and not self._over.is_set():
                        on_event(self, event)
            except Exception as error:  # nobody would hear of anything any more
                LOGGER.exception("the controller's events cannot be followed")
                on_broken(f"the controller failed: {error}")

        self._watcher = threading.Thread(target=run, name=f"mindio-events-{self.number}", daemon=True)
        self._watcher.start()

    def retire(self) -> None:
        """Those of its crew that go on have another place: nothing that it tells counts any more. Until they have left it, it stays."""
        self._over.set()
        timer = threading.Timer(_LEAVE_LIMIT, self.end)
        timer.daemon = True
        timer.start()

    def end(self) -> None:
        """Any number of times. Not on the watcher's thread."""
        self._over.set()
        with self._ending:
            if self._ended:
                return
            self._ended = True
            self._watcher.join()
            self.core.stop()

    def report_exit(self, rank: int, incarnation: int, cause: str) -> None:
        self.core.report_exit(self.crew.number(rank), incarnation, cause)
