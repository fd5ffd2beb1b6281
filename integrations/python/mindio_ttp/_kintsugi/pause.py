"""A pause at a step that all ranks share.

Every rank is asked to hold at the end of its iteration and says which iteration it last ended; the pause is one after the
newest of them. No rank can have run past it, since each holds from its answer on.

Threads: any; what is shared is under the lock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .codes import MindioError
from .log import LOGGER

if TYPE_CHECKING:
    from .master import Master


class PauseBroken(MindioError):
    """An incident came first."""


class Pauses:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._changed = threading.Condition()
        self._active = False
        self._asked: set[int] = set()
        self._held: dict[int, int] = {}
        self._paused: dict[int, str] = {}

    @property
    def active(self) -> bool:
        with self._changed:
            return self._active

    def pause(self, limit: float) -> int:
        """Returns the step once every rank stands there; raises MindioError."""
        with self._changed:
            if self._active:
                raise MindioError("training is paused already: 'continue' comes first")
            self._active = True
            self._held, self._paused = {}, {}
            self._asked = set(self._master.ranks.broadcast({"do": "hold"}))
            if not self._changed.wait_for(lambda: not self._asked - set(self._held) or not self._active, limit):
                late = sorted(self._asked - set(self._held))
                self._give_up(f"ranks {late} did not answer within {limit:g} s")
            if not self._active:
                raise PauseBroken("an incident came before the pause")
            at = max(self._held.values(), default=0) + 1
        self._master.ranks.broadcast({"do": "pause_at", "step": at})
        with self._changed:
            if not self._changed.wait_for(lambda: not self._asked - set(self._paused) or not self._active, limit):
                late = sorted(self._asked - set(self._paused))
                self._give_up(f"ranks {late} did not reach step {at} within {limit:g} s")
            if not self._active:
                raise PauseBroken("an incident came before the pause")
            failed = {rank: error for rank, error in self._paused.items() if error}
            if failed:
                self._give_up(f"stream_sync failed: {failed}")
        return at

    def resume(self) -> None:
        """Raises MindioError where nothing is paused."""
        with self._changed:
            if not self._active:
                raise MindioError("nothing is paused")
            self._active = False
        self._master.ranks.broadcast({"do": "continue"})

    def drop(self) -> None:
        """An incident ends a pause: a rank that waits in it is stopped by the incident itself."""
        with self._changed:
            self._active = False
            self._changed.notify_all()
        self._master.ranks.broadcast({"do": "continue"})

    def on_held(self, rank: int, step: int) -> None:
        with self._changed:
            self._held[rank] = step
            self._changed.notify_all()

    def on_paused(self, rank: int, error: str) -> None:
        with self._changed:
            self._paused[rank] = error
            self._changed.notify_all()

    def on_gone(self, rank: int) -> None:
        with self._changed:
            self._asked.discard(rank)
            self._changed.notify_all()

    def _give_up(self, why: str) -> None:
        LOGGER.error("the pause failed: %s", why)
        self._active = False
        self._master.ranks.broadcast({"do": "continue"})
        raise MindioError(why)
