"""Who holds which part of the optimizer's state: checks of what ranks say, and the pairs of a repair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import arguments
from .codes import MindioError

OPTIMIZER_TYPES_MAX = 1000


@dataclass(frozen=True)
class Group:
    """The ranks that share one optimizer type's state, ascending, and how many hold each part of it."""

    ranks: tuple[int, ...]
    replicas: int

    @property
    def stride(self) -> int:
        return len(self.ranks) // self.replicas

    def part(self, rank: int) -> int:
        """Which of the group's parts it holds."""
        return self.ranks.index(rank) % self.stride

    def holders(self, rank: int) -> tuple[int, ...]:
        return self.ranks[self.part(rank) :: self.stride]

    def source(self, rank: int, usable: Iterable[int]) -> int:
        """The first usable holder on the way from `rank` by the stride."""
        allowed = set(usable)
        index = self.ranks.index(rank)
        for hop in range(1, self.replicas):
            candidate = self.ranks[(index + hop * self.stride) % len(self.ranks)]
            if candidate in allowed:
                return candidate
        raise MindioError(f"no usable rank holds what rank {rank} lacks")


def parse(call: str, rank: int, world_size: int, replica_info: Any, all_replicas: bool) -> list[Group]:
    """`replica_info` of one rank; `all_replicas`: every rank of a group must hold the same."""
    if not isinstance(replica_info, list) or not replica_info:
        raise MindioError(f"{call}: replica_info is {replica_info!r}: a list of dictionaries is needed")
    if len(replica_info) > OPTIMIZER_TYPES_MAX:
        raise MindioError(f"{call}: replica_info has {len(replica_info)} entries: {OPTIMIZER_TYPES_MAX} are allowed")
    groups = []
    for number, entry in enumerate(replica_info):
        where = f"replica_info[{number}]"
        if not isinstance(entry, dict):
            raise MindioError(f"{call}: {where} is {entry!r}: a dictionary is needed")
        missing = [key for key in ("rank_list", "replica_cnt", "replica_shift") if key not in entry]
        if missing:
            raise MindioError(f"{call}: {where} lacks {', '.join(missing)}")
        ranks = arguments.ranks(call, f"{where}['rank_list']", entry["rank_list"], world_size)
        replicas = arguments.integer(call, f"{where}['replica_cnt']", entry["replica_cnt"], 1, len(ranks))
        arguments.integer(call, f"{where}['replica_shift']", entry["replica_shift"], -(1 << 31), (1 << 31) - 1)
        if rank not in ranks:
            raise MindioError(f"{call}: {where}['rank_list'] is {ranks}, without rank {rank} itself")
        if len(ranks) % replicas:
            raise MindioError(f"{call}: {where}: {replicas} replicas do not divide a group of {len(ranks)} ranks")
        if all_replicas and replicas != len(ranks):
            raise MindioError(f"{call}: {where}: replica_cnt is {replicas}, the group has {len(ranks)} ranks: for MindSpore they must be equal")
        groups.append(Group(tuple(ranks), replicas))
    return groups


class World:
    """What all ranks have said, and the first contradiction in it."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.told: dict[int, list[Group]] = {}

    def add(self, rank: int, groups: list[Group]) -> str:
        """What is wrong now; "" for nothing. A rank that is wrong counts as one that has said nothing."""
        before = self.told.pop(rank, None)
        error = self._conflict(rank, groups)
        if error:
            if before is not None:
                self.told[rank] = before
            return error
        self.told[rank] = groups
        return ""

    def _conflict(self, rank: int, groups: list[Group]) -> str:
        for other, said in self.told.items():
            if len(said) != len(groups):
                return f"rank {rank} names {len(groups)} optimizer types, rank {other} {len(said)}"
            for number, (mine, theirs) in enumerate(zip(groups, said)):
                where = f"optimizer type {number}: "
                if len(mine.ranks) != len(theirs.ranks) or mine.replicas != theirs.replicas:
                    return (f"{where}rank {rank}'s group {list(mine.ranks)} with {mine.replicas} replicas and rank {other}'s "
                            f"{list(theirs.ranks)} with {theirs.replicas} are unequal")
                if mine.ranks != theirs.ranks and set(mine.ranks) & set(theirs.ranks):
                    return f"{where}rank {rank}'s group {list(mine.ranks)} and rank {other}'s {list(theirs.ranks)} overlap"
                if mine.ranks != theirs.ranks and (other in mine.ranks or rank in theirs.ranks):
                    return f"{where}rank {rank} names {list(mine.ranks)}, rank {other} {list(theirs.ranks)}"
        if len(self.told) + 1 == self.world_size:
            for number in range(len(groups)):
                covered = set(groups[number].ranks).union(*(said[number].ranks for said in self.told.values()))
                if len(covered) != self.world_size:
                    return f"optimizer type {number}: the groups cover {len(covered)} of {self.world_size} ranks"
        for number, group in enumerate(groups):
            if self.world_size % len(group.ranks):
                return f"optimizer type {number}: groups of {len(group.ranks)} ranks cannot cover {self.world_size} ranks"
        return ""


@dataclass(frozen=True)
class Pair:
    kind: int  # optimizer type
    source: int
    destination: int


def pairs(groups: Sequence[Group], moves: Iterable[tuple[int, int, list[int]]], group_of: Any) -> list[Pair]:
    """The moves of an incident as pairs. `group_of(kind, rank)`: the group of another rank, of equal shape."""
    found = []
    for kind, destination, sources in moves:
        group = groups[kind] if destination in groups[kind].ranks else group_of(kind, destination)
        found.append(Pair(kind, group.source(destination, sources), destination))
    return found


def component(found: Sequence[Pair], rank: int) -> list[int]:
    """The ranks that exchange state with `rank`, directly or through others: one group for all of it."""
    reached = {rank}
    grown = True
    while grown:
        before = len(reached)
        for pair in found:
            if pair.source in reached or pair.destination in reached:
                reached |= {pair.source, pair.destination}
        grown = len(reached) > before
    return sorted(reached)


def repair_infos(found: Sequence[Pair], rank: int, types: tuple[int, int]) -> list[dict[str, Any]]:
    """What `rank`'s repair handler is told: one dictionary for each part it takes. `types`: RepairType of a source and of this
    rank as a destination. A rank is never both in one repair."""
    mine = [pair for pair in found if rank in (pair.source, pair.destination)]
    if not mine:
        return []
    sends = mine[0].source == rank
    return [{
        "type": [pair.kind for pair in mine],
        "repair_type": types[0] if sends else types[1],
        "src": [pair.source for pair in mine],
        "dst": [pair.destination for pair in mine],
        "rank_list": component(found, rank),
    }]


def reload_info(rank: int, kinds: int, repair_type: int, ranks: Iterable[int]) -> dict[str, Any]:
    """What `rank`'s repair handler is told where all `ranks` load the client's checkpoint: of each of its `kinds` of optimizers it is its
    own source."""
    itself = [rank] * kinds
    return {"type": list(range(kinds)), "repair_type": repair_type, "src": itself, "dst": list(itself), "rank_list": sorted(ranks)}
