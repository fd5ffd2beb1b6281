"""One run, as the process that hosts its controllers has it: what becomes of its ranks' processes, and of all of it.

Threads: the host's.
"""

from __future__ import annotations

from .codes import FAULT_PROCESS, MindioError
from .desk import Peer
from .elastic import remaining
from .era import Era
from .eras import Eras
from .host import Host
from .log import LOGGER
from .place import Move, Place
from .processes import see_off
from .ranks import Ranks


class Run:
    def __init__(self, host: Host, ranks: Ranks, eras: Eras, enable_arf: bool) -> None:
        self.host, self.ranks, self.eras, self.enable_arf = host, ranks, eras, enable_arf
        self.over = ""  # everybody was told to leave, and why
        self.ended = False  # by itself
        self.stopping = False

    @property
    def is_over(self) -> bool:
        return self.ended or self.stopping or bool(self.over)

    # ---- its end --------------------------------------------------------------------------------------------------------------

    def save_and_end(self) -> None:
        if self.eras.now is None:
            raise MindioError("there is nothing to dump: no rank has begun to train")
        self.eras.now.core.save_and_end()

    def end_all(self, why: str) -> None:
        """Every process leaves, nothing is saved."""
        self.over = why
        for peer in self.ranks.peers.values():
            self.leave(peer, why)
        self.dismiss_all(why)

    def dismiss_all(self, why: str) -> None:
        """Nobody stands aside any longer."""
        for peer in self.ranks.aside.values():
            self.leave(peer, why)
        self.ranks.aside.clear()

    # ---- processes ------------------------------------------------------------------------------------------------------------

    def leave(self, peer: Peer, why: str) -> None:
        """A process is told to leave; one that does not is killed, where it is one of this host."""
        peer.send({"do": "leave", "text": why})
        self.host.begin(see_off(peer))

    def give_up(self, rank: int, why: str) -> None:
        """The process of a rank is to be replaced."""
        if rank in self.ranks.peers:
            self.leave(self.ranks.peers[rank], why)

    def report_exit(self, peer: Peer, cause: str) -> None:
        """A process counts as ended, whatever it still does."""
        incarnation, peer.incarnation = peer.incarnation, 0
        if incarnation and not self.over:
            self.eras.report_exit(peer.rank, incarnation, cause)

    def on_lost(self, peer: Peer, cause: str) -> None:
        if peer.incarnation:
            self.ranks.count_as_lost([peer.rank])
            self.report_exit(peer, cause)

    def lose(self, rank: int, why: str) -> None:
        """The scheduler's word."""
        if rank not in self.eras.crew:
            return
        self.ranks.note_fault(rank, FAULT_PROCESS, self.ranks.known_faults().get(rank, (0, ""))[1])
        peer = self.ranks.peers.get(rank)
        if peer is not None and peer.incarnation:
            self.report_exit(peer, why)
            self.leave(peer, why)

    # ---- eras -----------------------------------------------------------------------------------------------------------------

    def is_current(self, era: Era) -> bool:
        return self.eras.now is era and not self.over and not self.ended

    def missing(self) -> tuple[Era | None, set[int]]:
        """The era, None where the run is over; and those of its crew that have no process."""
        era = self.eras.now
        if era is None or not self.is_current(era):
            return None, set()
        return era, set(era.crew.ranks) - self.ranks.living

    def may_move(self) -> bool:
        """Nothing is under way."""
        era = self.eras.now
        return era is not None and self.is_current(era) and not era.pending and not self.ranks.known_faults()

    def step_out(self) -> None:
        """One rank leaves its loop, and so all do."""
        peer = next((self.ranks.peers[rank] for rank in self.eras.crew.ranks if rank in self.ranks.peers), None)
        if peer is not None:
            peer.send({"do": "step_out"})

    def move(self, before: Era, place: Place, back: dict[int, Peer] | None = None) -> None:
        """All of a crew go on in another era. `back`: processes that stood aside until now."""
        if not self.is_current(before):
            return
        ranks, era = self.ranks, self.eras.next(place)
        ranks.offset = place.offset
        ranks.peers.update(back or {})
        ranks.begin_era(keeps_faults=place.move is not Move.GROW)
        gone = [ranks.peers.pop(rank) for rank in list(ranks.peers) if rank not in era.crew]
        for peer in [*ranks.peers.values(), *gone]:
            peer.incarnation = 0
        LOGGER.warning("era %d begins, %s: ranks %s, and %s", era.number, place.move.value, list(era.crew.ranks), list(place.others))
        for peer in gone:
            self.leave(peer, "the run goes on without it: downgrade")
        for rank, peer in ranks.peers.items():
            peer.send({"do": "place", **era.place.message(), "dp": remaining(ranks.groups[rank][0].ranks, era.crew.ranks)})
