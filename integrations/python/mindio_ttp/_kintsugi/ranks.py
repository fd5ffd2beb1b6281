"""The processes of a run's ranks, as the controller's process knows them: their connections, their groups, and what each lacks.

A fault belongs to the incident under way, or to the next one: that an incident is over is heard on another way than what ranks report and
whose connections end. So a fault is kept with the generation that its rank had last gone through, and the end of an incident takes away those
of generations before the one that mended it.

Threads: the host's.
"""

from __future__ import annotations

from collections.abc import Iterable

from .codes import FAULT_PROCESS
from .desk import Message, Peer
from .layout import Group, World
from .log import LOGGER

Fault = tuple[int, str]  # its kind and the error's code


class Ranks:
    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.peers: dict[int, Peer] = {}
        self.aside: dict[int, Peer] = {}  # processes that wait for a place: of ranks that have another, or take no part
        self._faults: dict[int, tuple[Fault, int]] = {}  # and the generation after which it came
        self._rolled_back: dict[int, int] = {}  # the newest generation that a rank's process has gone through to the end
        self.offset: int | None = None  # the client's numbers of steps less Kintsugi's
        self.ran = False  # all have trained
        self._world = World(world_size)
        self._trained: set[int] = set()

    @property
    def linked(self) -> bool:
        return bool(self.peers)

    @property
    def living(self) -> set[int]:
        return set(self.peers)

    @property
    def unhurt(self) -> set[int]:
        """Those that take part and whose processes go on."""
        lost = {rank for rank, (kind, _) in self.known_faults().items() if kind == FAULT_PROCESS}
        return {rank for rank, peer in self.peers.items() if peer.incarnation and rank not in lost}

    @property
    def groups(self) -> dict[int, list[Group]]:
        return dict(self._world.told)

    def add_groups(self, rank: int, groups: list[Group]) -> str:
        """What is wrong with them; "" for nothing."""
        return self._world.add(rank, groups)

    def put_aside(self, peer: Peer) -> None:
        LOGGER.info("process %d on %s stands aside for rank %d", peer.pid, peer.host, peer.rank)
        self.aside[peer.rank], peer.ready = peer, False

    def forget(self, peer: Peer) -> bool:
        """Whether it was the process of its rank."""
        for places in (self.aside, self.peers):
            if places.get(peer.rank) is peer:
                del places[peer.rank]
                return places is self.peers
        return False

    def are_ready(self, ranks: Iterable[int]) -> bool:
        """For each of them a process stands aside that may take its place."""
        return all(rank in self.aside and self.aside[rank].ready for rank in ranks)

    def trains(self, rank: int) -> None:
        self._trained.add(rank)
        self.ran = self.ran or len(self._trained) == self.world_size

    # ---- faults -------------------------------------------------------------------------------------------------------------

    def known_faults(self) -> dict[int, Fault]:
        return {rank: fault for rank, (fault, _) in self._faults.items()}

    def note_fault(self, rank: int, kind: int, code: str) -> None:
        self._faults[rank] = ((kind, code), self._rolled_back.get(rank, 0))

    def count_as_lost(self, ranks: Iterable[int]) -> None:
        """Whatever they do. What is known of them already stays, unless it is of the incident before."""
        for rank in ranks:
            known = self._faults.get(rank)
            if known is None or known[1] < self._rolled_back.get(rank, 0):
                self.note_fault(rank, FAULT_PROCESS, "")

    def rolled_back(self, rank: int, generation: int) -> None:
        """0: its process is a new one."""
        self._rolled_back[rank] = generation

    def take_mended(self, generation: int) -> dict[int, Fault]:
        """The incident that was mended in `generation` is over: its faults, which are known no more."""
        taken = {rank: fault for rank, (fault, after) in self._faults.items() if after < generation}
        self._faults = {rank: kept for rank, kept in self._faults.items() if rank not in taken}
        return taken

    def begin_era(self, keeps_faults: bool) -> None:
        """Generations are counted anew."""
        self._rolled_back.clear()
        self._faults = {rank: (fault, 0) for rank, (fault, _) in self._faults.items()} if keeps_faults else {}

    def broadcast(self, message: Message) -> list[int]:
        for peer in self.peers.values():
            peer.send(message)
        return sorted(self.peers)

    def take_offset(self, offset: int, forced: bool) -> int:
        """What counts from now on: the first that was told, or one that a reload has made."""
        if self.offset is None or forced:
            self.offset = offset
        return self.offset
