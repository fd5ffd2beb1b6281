"""A run that goes on with fewer ranks, and grows back (MindIO's ZIT).

| what | who says so |
|---|---|
| `downgrade` is offered | elastic.py, of what all ranks have said and who is lost |
| `downgrade` | the scheduler, as its word on an incident |
| stopped and cleaned | every rank that is left, whose word this waits for |
| 201: who is left out | this; who still lives of these leaves |
| `zit_downgrade_rebuild` | the first incident of a new era of those that stay (place.py, journey.py) |
| `upgrade` | the scheduler, at any time |
| ready | processes of those that were left out, which stand aside once their trainings have raised ARF FINISH |
| stop, clean | an incident that nobody's fault begins |
| `zit_upgrade_rebuild`, `_repair`, `_rollback` | the first incident of an era of all ranks, where those that came back lack their state |

A rank that is lost before all have joined a new era is met by another one; from then on by Kintsugi, as in any other run.

Threads: any; a move is decided on one of its own. What is shared is under the lock, which is held for no call to others.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from . import elastic
from .codes import ISOLATED, MAY_DUMP, ONLY_EXIT, MindioError
from .desk import Message, Peer
from .elastic import CannotShrink, Elastic
from .log import LOGGER
from .place import Crew, Move, Place

if TYPE_CHECKING:
    from .era import Era
    from .master import Master


class Zit:
    """What is going on in one run."""

    def __init__(self, master: Master, enabled: bool) -> None:
        self._master = master
        self.enabled = enabled
        self.client = ""  # MindSpeed's handler of a downgrade counts on the whole group: it takes one until the upgrade
        self._changed = threading.Condition()
        self._said: dict[int, Elastic] = {}
        self._aside: dict[int, Peer] = {}
        self._ready: set[int] = set()
        self._round = (0, 0)  # era and generation whose ranks are cleaned
        self._cleaned: dict[int, int | None] = {}
        self._left_out: set[int] = set()
        self._down, self._up = "", ""  # the scheduler's parameters; of a growth: once it is asked for
        self._moving = threading.Lock()  # one move after the other

    # ---- the scheduler ----------------------------------------------------------------------------------------------------

    @property
    def shrunk(self) -> bool:
        with self._changed:
            return bool(self._left_out)

    def offers(self, lost: set[int]) -> list[str]:
        """What can be chosen where these are lost."""
        if not self.enabled:
            return []
        groups = self._master.ranks.groups
        with self._changed:
            said, out = dict(self._said), set(self._left_out)
        why = elastic.why_not(self._master.world_size, groups, said)
        if out and self.client:
            why = f"{self.client}'s handlers take no second downgrade before the upgrade"
        try:
            if not why:
                elastic.shrink(groups, said, out | lost)
        except CannotShrink as error:
            why = str(error)
        if why:
            LOGGER.warning("downgrade is not offered: %s", why)
            return []
        return ["downgrade", "upgrade"]

    def choose(self, param: str) -> None:
        """'downgrade' is the scheduler's word."""
        with self._changed:
            self._down = param

    def ask_upgrade(self, param: str) -> None:
        """Raises MindioError."""
        if not self.shrunk:
            raise MindioError("'upgrade': all ranks take part: 'downgrade' comes first")
        with self._changed:
            self._up = param
        LOGGER.warning("upgrade: ranks %s are to come back", sorted(self._left_out))
        self.try_to_grow()

    # ---- the desk -----------------------------------------------------------------------------------------------------------

    def hear(self, rank: int, message: Message) -> None:
        """What a rank says of itself when its training begins."""
        said = Elastic(tuple(message["dp"]), tuple(message["handlers"]), bool(message["enabled"]))
        with self._changed:
            self._said[rank] = said

    def put_aside(self, peer: Peer) -> None:
        """A process of a rank that was, or is about to be, left out waits until it is asked for."""
        LOGGER.info("process %d on %s stands aside for rank %d", peer.pid, peer.host, peer.rank)
        with self._changed:
            self._aside[peer.rank] = peer
            self._ready.discard(peer.rank)

    def stands_aside(self, rank: int) -> Peer | None:
        with self._changed:
            return self._aside.get(rank)

    def on_ready(self, peer: Peer) -> None:
        with self._changed:
            if self._aside.get(peer.rank) is not peer:
                return
            self._ready.add(peer.rank)
        self.look()
        self.try_to_grow()

    def on_gone(self, peer: Peer) -> None:
        with self._changed:
            if self._aside.get(peer.rank) is peer:
                del self._aside[peer.rank]
                self._ready.discard(peer.rank)

    def take_all(self) -> list[Peer]:
        """Those that stand aside, who do so no longer."""
        with self._changed:
            peers = list(self._aside.values())
            self._aside, self._ready, self._up = {}, set(), ""
            return peers

    def on_cleaned(self, rank: int, era: int, generation: int, offset: int | None) -> None:
        with self._changed:
            if (era, generation) != self._round:
                self._round, self._cleaned = (era, generation), {}
            self._cleaned[rank] = offset
        self.look()

    # ---- moves --------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Begins a move where all that are left are cleaned, or somebody was lost on the way into the era."""
        def run() -> None:
            with self._moving:
                self._look()

        threading.Thread(target=run, name="mindio-zit", daemon=True).start()

    def _look(self) -> None:
        era, missing = self._master.missing()
        if era is None:
            return
        if era.move is not Move.NONE and not era.opened:
            if missing:
                self._redo(era)
            return
        word, waited_for = self._master.scheduler.word, self._master.ranks.unhurt
        with self._changed:
            if self._round[0] != era.number or not waited_for or not waited_for <= set(self._cleaned):
                return
            offset = next((offset for offset in self._cleaned.values() if offset is not None), None)
        if word == "downgrade":
            self._shrink(era, offset)
        elif word == "upgrade":
            self._grow(era, offset)

    def _shrink(self, era: Era, offset: int | None) -> None:
        master = self._master
        lost = set(master.ranks.known_faults())
        with self._changed:
            said = dict(self._said)
            lost |= self._left_out
        try:
            if self.client and era.move is Move.SHRINK and era.opened:
                raise CannotShrink(f"{self.client}'s handlers take no second downgrade before the upgrade", may_dump=True)
            out = elastic.shrink(master.ranks.groups, said, lost)
        except CannotShrink as error:
            LOGGER.error("downgrade: %s", error)
            master.scheduler.fail(MAY_DUMP if error.may_dump else ONLY_EXIT, f"downgrade: {error}", "downgrade")
            return
        if not master.is_current(era):
            return
        with self._changed:
            self._left_out = out
            param = self._down
        master.ranks.count_as_lost(out)
        master.scheduler.tell_result(ISOLATED, "controller notify isolate ranks.", "downgrade")
        crew = Crew(set(range(master.world_size)) - out)
        master.move(era, Place(0, 0, crew, Move.SHRINK, offset, tuple(sorted(out)), (), param))
        self.look()

    def try_to_grow(self) -> None:
        """Begins the incident in which all are stopped, where it is asked for and all are there."""
        with self._changed:
            if not self._up or not self._left_out or not self._left_out <= self._ready:
                return
        if self._master.may_move() and self._master.scheduler.begin_agreed("upgrade"):
            self._master.step_out()

    def _grow(self, era: Era, offset: int | None) -> None:
        with self._changed:
            if not self._left_out <= self._ready:
                LOGGER.warning("upgrade: a process of ranks %s is gone: another one is waited for", sorted(self._left_out - self._ready))
                return
            out, param = set(self._left_out), self._up
            peers = {rank: self._aside.pop(rank) for rank in out}
            self._ready -= out
        self._master.scheduler.commit_agreed()
        crew = Crew(range(self._master.world_size))
        self._master.move(era, Place(0, 0, crew, Move.GROW, offset, tuple(sorted(out)), (), param), peers)
        self.look()

    def _redo(self, era: Era) -> None:
        """Not all of the era's crew came: nothing of the client's was called there."""
        offset = era.place.offset
        if era.move is Move.SHRINK:
            self._master.ranks.count_as_lost(self._master.missing()[1])
            self._shrink(era, offset)
            return
        came = self._master.ranks.living
        with self._changed:
            holders = set(era.crew.ranks) - set(era.place.others)
            lost = holders - came
            wanted = (holders | self._left_out) - came
            complete = wanted <= self._ready
            peers = {rank: self._aside.pop(rank) for rank in wanted} if complete else {}
            self._ready -= set(peers)
            out, param, said = self._left_out | lost, era.place.param, dict(self._said)
        try:
            elastic.shrink(self._master.ranks.groups, said, out)
        except CannotShrink as error:
            self._master.scheduler.fail(ONLY_EXIT, f"upgrade: {error}", "upgrade")
            return
        with self._changed:
            self._left_out = out
        if complete:
            self._master.move(era, Place(0, 0, era.crew, Move.GROW, offset, tuple(sorted(out)), (), param), peers)
            self.look()

    def on_mended(self, era: Era, moved: bool) -> None:
        """An incident is over; in it all have moved, if they had to."""
        with self._changed:
            if moved and era.move is Move.GROW:
                self._left_out, self._up = set(), ""
        self.try_to_grow()
