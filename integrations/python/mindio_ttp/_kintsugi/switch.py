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

Threads: the host's.
"""

from __future__ import annotations

from . import settings
from .codes import FAULT_PROCESS, MindioError
from .desk import Peer
from .log import LOGGER
from .pause import PauseBroken, Pauses
from .run import Run
from .scheduler import Scheduler
from .slices import Slices

_AGAIN = 0.1  # after an incident


class Switch:
    """What is going on in one run."""

    def __init__(self, run: Run, pauses: Pauses, scheduler: Scheduler, slices: Slices) -> None:
        self._run, self._ranks, self._pauses, self._scheduler, self._slices = run, run.ranks, pauses, scheduler, slices
        self._replaced: set[int] = set()  # ranks that are to be
        self.migrates = False  # the incident under way is a switch: its ranks stand still by themselves

    # ---- the scheduler ----------------------------------------------------------------------------------------------------

    def prepare(self, ranks: set[int]) -> None:
        """Raises MindioError."""
        if not self._run.enable_arf:
            raise MindioError("'hot switch' needs a controller with enable_arf: a process is replaced")
        if not self._scheduler.present:
            raise MindioError("'hot switch' needs a scheduler: all four callbacks are registered before the controller starts")
        if not ranks:
            raise MindioError("'hot switch' names no rank: fault_ranks says which processes are replaced")
        out = sorted(ranks - set(self._run.eras.crew.ranks))
        if out or self._slices.left_out:
            raise MindioError(f"'hot switch' comes after the upgrade: ranks {out or 'of this run'} were left out")
        if self._replaced:
            raise MindioError(f"ranks {sorted(self._replaced)} are being switched already: 'stop switch' ends that")
        self._replaced = set(ranks)
        LOGGER.warning("hot switch: another process for ranks %s is waited for", sorted(ranks))
        self._run.host.begin(self._carry_out())

    def stop(self, why: str = "the scheduler has called the hot switch off") -> None:
        """Called off: a rank that stands aside leaves, and training goes on. Nothing happens where nothing is switched, or it is too late."""
        if self.migrates:
            return
        for rank in self._replaced & set(self._ranks.aside):
            self._run.leave(self._ranks.aside.pop(rank), why)
        self._replaced = set()
        self._scheduler.withdraw()

    # ---- the desk -----------------------------------------------------------------------------------------------------------

    def put_aside(self, rank: int, peer: Peer) -> bool:
        """Whether a process that has just come stands aside, while the rank has another one."""
        if rank not in self._replaced or rank in self._ranks.aside or self.migrates:
            return False
        peer.rank = rank
        self._ranks.put_aside(peer)
        return True

    def promote(self, rank: int) -> None:
        """Who stands aside for the rank, if anybody does, is its process from now on."""
        if rank not in self._replaced:
            return
        self._replaced.discard(rank)
        peer = self._ranks.aside.pop(rank, None)
        if peer is not None:
            self._ranks.peers[rank] = peer
            peer.send({"do": "take_place", "offset": self._ranks.offset})

    # ---- an order -----------------------------------------------------------------------------------------------------------

    async def _carry_out(self) -> None:
        while True:
            await self._run.host.until(lambda: self._ranks.are_ready(self._replaced))
            ranks = set(self._replaced)
            if not ranks or not await self._try(ranks):
                return

    async def _try(self, ranks: set[int]) -> bool:
        """Whether to try again."""
        over = None
        try:
            over = await self._pauses.pause(settings.current().action_limit)
            offered = ["migration"]
        except PauseBroken:
            return await self._await_calm()
        except MindioError as error:
            LOGGER.error("hot switch: no pause: %s", error)
            offered = ["exit"]
        strategy = await self._scheduler.choose(offered)
        wanted = ranks == self._replaced and self._ranks.are_ready(ranks)
        if strategy == "migration" and wanted and self._scheduler.begin_agreed("migration"):
            self._migrate(ranks)
            return False
        if strategy == "exit":
            self._run.end_all("the scheduler chose exit")
            return False
        if over is not None and not over.is_set():
            await self._pauses.drop()
        if self._scheduler.talks or not wanted:
            return await self._await_calm()
        LOGGER.warning("hot switch: the scheduler did not say 'migration': training goes on as it was")
        self.stop()
        return False

    def _migrate(self, ranks: set[int]) -> None:
        """All ranks stand in a pause: those that stand aside take the places of these."""
        self.migrates = True
        for rank in sorted(ranks):
            self._ranks.note_fault(rank, FAULT_PROCESS, "")
        for old in [self._ranks.peers[rank] for rank in sorted(ranks) if rank in self._ranks.peers]:
            self._run.report_exit(old, "another process takes its place: hot switch")
            self.promote(old.rank)
            self._run.leave(old, "another process has taken its place: hot switch")

    async def _await_calm(self) -> bool:
        """Whether there is still something to switch."""
        while True:
            if await self._run.host.until(lambda: not self._replaced, _AGAIN):
                return False
            if not self._scheduler.talks:
                return True
