"""The processes of a run's ranks, as the controller's process knows them: their connections, their groups, and what each lacks.

Threads: any; what several read and write is under `lock`, which `changed` is the condition of.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from .codes import FAULT_PROCESS
from .desk import Message, Peer
from .layout import Group, World

Fault = tuple[int, str]  # its kind and the error's code


class Ranks:
    def __init__(self, world_size: int) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.world_size = world_size
        self.peers: dict[int, Peer] = {}
        self.faults: dict[int, Fault] = {}  # of the incident under way
        self.offset: int | None = None  # the client's numbers of steps less Kintsugi's
        self.ran = False  # all have trained
        self._world = World(world_size)
        self._trained: set[int] = set()

    @property
    def linked(self) -> bool:
        with self.lock:
            return bool(self.peers)

    @property
    def living(self) -> set[int]:
        with self.lock:
            return set(self.peers)

    @property
    def unhurt(self) -> set[int]:
        """Those that take part and whose processes go on."""
        with self.lock:
            lost = {rank for rank, (kind, _) in self.faults.items() if kind == FAULT_PROCESS}
            return {rank for rank, peer in self.peers.items() if peer.incarnation and rank not in lost}

    @property
    def groups(self) -> dict[int, list[Group]]:
        with self.lock:
            return dict(self._world.told)

    def add_groups(self, rank: int, groups: list[Group]) -> str:
        """What is wrong with them; "" for nothing."""
        with self.lock:
            return self._world.add(rank, groups)

    def trains(self, rank: int) -> None:
        with self.lock:
            self._trained.add(rank)
            self.ran = self.ran or len(self._trained) == self.world_size

    def known_faults(self) -> dict[int, Fault]:
        with self.lock:
            return dict(self.faults)

    def count_as_lost(self, ranks: Iterable[int]) -> None:
        """Whatever they do. What is known of them already stays."""
        with self.lock:
            for rank in ranks:
                self.faults.setdefault(rank, (FAULT_PROCESS, ""))

    def broadcast(self, message: Message) -> list[int]:
        with self.lock:
            peers = dict(self.peers)
        for peer in peers.values():
            peer.send(message)
        return sorted(peers)

    def take_offset(self, offset: int, forced: bool) -> int:
        """What counts from now on: the first that was told, or one that a reload has made."""
        with self.lock:
            if self.offset is None or forced:
                self.offset = offset
            return self.offset
