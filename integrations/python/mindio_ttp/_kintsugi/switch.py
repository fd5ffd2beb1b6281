"""Hot switch: the process of a rank that still trains is replaced by another, which has registered beside it.

| what | who says so |
|---|---|
| `prepare_action("hot switch", ranks)` | the scheduler: another process of such a rank is put aside when it comes |
| ready | that process, once its training has raised ARF FINISH |
| all ranks stand in tft_pause_train, one step after the newest | this |
| `report_strategies({}, ["migration"])`, then `change_strategy("migration")` | this, then the scheduler; `["exit"]` where no pause came about |
| tft_pause_train raises STEP FINISH; the old process leaves, the new one joins | this |
| `rebuild_group`, `repair`, `rollback` | an incident as any other, but nobody is stopped or cleaned |

A process that stands aside takes the place at once if the old one is lost meanwhile. An incident elsewhere only delays a switch.

Threads: one for each `prepare`; what it shares with the desk's and the scheduler's is under the lock, which is held for no call to others.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from . import settings
from .codes import MindioError
from .desk import Peer
from .log import LOGGER
from .pause import PauseBroken

if TYPE_CHECKING:
    from .master import Master

_AGAIN = 0.1  # after an incident


class Switch:
    """What is going on in one run."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._changed = threading.Condition()
        self._ranks: set[int] = set()  # to be replaced
        self._aside: dict[int, Peer] = {}
        self._ready: set[int] = set()
        self._migrates = False

    # ---- the scheduler ----------------------------------------------------------------------------------------------------

    def prepare(self, ranks: set[int]) -> None:
        """Raises MindioError."""
        if not self._master.enable_arf:
            raise MindioError("'hot switch' needs a controller with enable_arf: a process is replaced")
        if not self._master.scheduler.present:
            raise MindioError("'hot switch' needs a scheduler: all four callbacks are registered before the controller starts")
        if not ranks:
            raise MindioError("'hot switch' names no rank: fault_ranks says which processes are replaced")
        out = sorted(ranks - set(self._master.eras.crew.ranks))
        if out or self._master.zit.shrunk:
            raise MindioError(f"'hot switch' comes after the upgrade: ranks {out or 'of this run'} were left out")
        with self._changed:
            if self._ranks:
                raise MindioError(f"ranks {sorted(self._ranks)} are being switched already: 'stop switch' ends that")
            self._ranks = set(ranks)
        LOGGER.warning("hot switch: another process for ranks %s is waited for", sorted(ranks))
        threading.Thread(target=self._run, name="mindio-switch", daemon=True).start()

    def stop(self) -> None:
        """Called off: a rank that stands aside leaves, and training goes on. Nothing happens where nothing is switched, or it is too late."""
        with self._changed:
            if self._migrates:
                return
            left = self._clear()
        self._master.scheduler.withdraw()
        for peer in left:
            self._master.dismiss(peer, "the scheduler has called the hot switch off")

    # ---- the desk -----------------------------------------------------------------------------------------------------------

    def put_aside(self, rank: int, peer: Peer) -> bool:
        """Whether a process that has just come stands aside, while the rank has another one."""
        with self._changed:
            if rank not in self._ranks or rank in self._aside or self._migrates:
                return False
            self._aside[rank] = peer
        LOGGER.info("hot switch: process %d on %s stands aside for rank %d", peer.pid, peer.host, rank)
        return True

    def on_ready(self, peer: Peer) -> None:
        with self._changed:
            if self._aside.get(peer.rank) is peer:
                self._ready.add(peer.rank)
                self._changed.notify_all()

    def on_gone(self, peer: Peer) -> None:
        with self._changed:
            if self._aside.get(peer.rank) is not peer:
                return
            del self._aside[peer.rank]
            self._ready.discard(peer.rank)
        LOGGER.warning("hot switch: the process that stood aside for rank %d is gone; another one may come", peer.rank)

    def take(self, rank: int) -> Peer | None:
        """Who stands aside for the rank, and does so no longer."""
        with self._changed:
            peer = self._aside.pop(rank, None)
            self._ready.discard(rank)
            self._ranks.discard(rank)
            self._changed.notify_all()
            return peer

    # ---- the incident -------------------------------------------------------------------------------------------------------

    @property
    def migrates(self) -> bool:
        """The incident under way is a switch: its ranks stand still by themselves."""
        with self._changed:
            return self._migrates

    def on_over(self) -> None:
        """An incident was mended, or the run has ended."""
        with self._changed:
            self._migrates = False

    # ---- the thread ---------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready >= self._ranks)
                ranks = set(self._ranks)
            if not ranks or not self._try(ranks):
                return

    def _try(self, ranks: set[int]) -> bool:
        """Whether to try again."""
        master = self._master
        try:
            master.pauses.pause(settings.current().action_limit)
            offered = ["migration"]
        except PauseBroken:
            return self._wait_for_calm()
        except MindioError as error:
            LOGGER.error("hot switch: no pause: %s", error)
            offered = ["exit"]
        strategy = master.scheduler.choose(offered)
        with self._changed:
            wanted = self._ready >= self._ranks == ranks
        if strategy == "migration" and wanted and master.scheduler.begin_agreed("migration"):
            with self._changed:
                self._migrates = True
            master.migrate(ranks)
            return False
        if strategy == "exit":
            master.end_all("the scheduler chose exit")
            return False
        try:
            master.pauses.resume()
        except MindioError:
            pass  # an incident has ended the pause
        if master.scheduler.talks or not wanted:
            return self._wait_for_calm()
        LOGGER.warning("hot switch: the scheduler did not say 'migration': training goes on as it was")
        self.stop()
        return False

    def _wait_for_calm(self) -> bool:
        """Whether there is still something to switch."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: not self._ranks, _AGAIN):
                    return False
            if not self._master.scheduler.talks:
                return True

    def _clear(self) -> list[Peer]:
        """With the lock."""
        left = list(self._aside.values())
        self._ranks, self._aside, self._ready = set(), {}, set()
        self._changed.notify_all()
        return left
