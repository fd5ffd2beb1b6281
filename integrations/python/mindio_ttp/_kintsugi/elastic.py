"""Which ranks a run leaves out when it goes on with fewer, and why it cannot: decisions alone.

A shrink takes slices out of the data-parallel dimension: with a lost rank go all that stand at its place in their groups, those of
the optimizers' types and those of data parallelism, so that what is left is a smaller world of the same form. Each part of the
optimizer's state must stay in somebody's hands, since nothing is moved. Rank 0 always stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .layout import Group

# What a rank must be able to do before it is asked to go on in another world.
HANDLERS = ("zit_downgrade_rebuild", "zit_upgrade_rebuild", "zit_upgrade_repair", "zit_upgrade_rollback")


class CannotShrink(Exception):
    """The text says why. `may_dump`: every part of the state is still held."""

    def __init__(self, why: str, may_dump: bool = False) -> None:
        super().__init__(why)
        self.may_dump = may_dump


@dataclass(frozen=True)
class Elastic:
    """What one rank has said of itself."""

    dp: tuple[int, ...] = ()  # its data-parallel group as it was made; () where it was never set
    handlers: tuple[str, ...] = ()
    enabled: bool = True


def why_not(world_size: int, groups: Mapping[int, Sequence[Group]], said: Mapping[int, Elastic]) -> str:
    """What keeps this run from ever shrinking; "" for nothing."""
    for rank in range(world_size):
        if rank not in groups or rank not in said:
            return f"rank {rank} has not begun to train"
        mine = said[rank]
        if not mine.enabled:
            return f"rank {rank} was initialized without enable_zit (tft_init_processor)"
        if not mine.dp:
            return f"rank {rank} has not set its data-parallel group (tft_set_dp_group_info)"
        missing = [name for name in HANDLERS if name not in mine.handlers]
        if missing:
            return f"rank {rank} has no {missing[0]} handler (tft_register_{missing[0]}_handler)"
        for other in mine.dp:
            if other in said and said[other].dp and said[other].dp != mine.dp:
                return f"rank {rank}'s data-parallel group is {list(mine.dp)}, its member rank {other}'s is {list(said[other].dp)}"
        if len(mine.dp) != len(said[0].dp):
            return f"rank {rank}'s data-parallel group has {len(mine.dp)} ranks, rank 0's has {len(said[0].dp)}"
    return ""


def isolated(groups: Mapping[int, Sequence[Group]], said: Mapping[int, Elastic], lost: Iterable[int]) -> set[int]:
    """The lost ranks, and every rank at the same place in a group as one that is left out."""
    divisions = [_places(kinds[number].ranks for kinds in groups.values()) for number in range(len(next(iter(groups.values()))))]
    divisions.append(_places(mine.dp for mine in said.values()))
    out = set(lost)
    while True:
        found = set(out)
        for division in divisions:
            places = {division[rank] for rank in found}
            found |= {rank for rank, place in division.items() if place in places}
        if found == out:
            return out
        out = found


def _places(groups: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """Where each rank stands in its group."""
    return {rank: place for members in set(groups) for place, rank in enumerate(members)}


def shrink(groups: Mapping[int, Sequence[Group]], said: Mapping[int, Elastic], lost: Iterable[int]) -> set[int]:
    """The ranks to leave out where these are lost, or were left out before. Raises CannotShrink."""
    out = isolated(groups, said, lost)
    for rank, kinds in sorted(groups.items()):
        for number, group in enumerate(kinds):
            if out.issuperset(group.holders(rank)):
                raise CannotShrink(f"ranks {sorted(out)} would be left out, and with them all holders of rank {rank}'s part of optimizer "
                                   f"type {number}: {list(group.holders(rank))}")
    if 0 in out:
        raise CannotShrink(f"ranks {sorted(out)} would be left out, and rank 0 must stay", may_dump=True)
    return out


def remaining(group: Sequence[int], crew: Iterable[int]) -> list[int]:
    """Who is left of a group, ascending."""
    here = set(crew)
    return [rank for rank in sorted(group) if rank in here]
