"""Slices: ranks that together hold one replica of all that is registered. One of them can be left out, or come again, without a byte that moves.

Pure. Errors: Error, which names rank, tensor and box.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ._errors import Error
from .abi import Code

Slice = tuple[int, ...]  # ascending


class Held(NamedTuple):
    """A tensor, or the part of one, that some ranks hold alike, this one among them."""

    key: str
    box: str
    holders: Slice


def slices_among(world_size: int, together: Iterable[Iterable[int]]) -> list[Slice]:
    """The smallest: ranks of one row of `together`, which hold a tensor together, are in one."""
    of = {rank: {rank} for rank in range(world_size)}
    for row in together:
        joined = {member for rank in row for member in of[rank]}
        of.update(dict.fromkeys(joined, joined))
    return sorted({tuple(sorted(slice_)) for slice_ in of.values()})


def slice_with(rank: int, slices: Iterable[Slice]) -> Slice:
    return next(slice_ for slice_ in slices if rank in slice_)


def refuse_halves(size: int, worlds: Iterable[int], most: int, held: Held | None) -> None:
    """Worlds are made up of slices of `size`. `most`: the run's places; `held`: by some ranks alone."""
    if odd := [world for world in worlds if world % size != 0]:
        what = f"'{held.key}' is held by ranks {_ranks(held.holders)} alone, and the others lack it: " if held else ""
        none = ", which are all: none can be left out. Leave run.offer out, or use a mesh that also replicates (HSDP)" if size == most else ""
        raise Error(f"run.offer: {what}a replica takes {size} ranks{none or f', so that worlds have a multiple of them, not {_ranks(odd)}'}", Code.FAILED_PRECONDITION)


def all_slices(told: Mapping[int, Slice]) -> list[Slice]:
    """By rank, what each says of its own. They make up all ranks, and are of one size."""
    first = min(told)
    for rank, slice_ in sorted(told.items()):
        if rank not in slice_ or not {*slice_} <= told.keys():
            raise _misfit(f"the slice of rank {rank} is {_ranks(slice_)}: it has that rank, and others that take part")
        for other in slice_:
            if told[other] != slice_:
                raise _misfit(f"the slice of rank {rank} is {_ranks(slice_)}, that of rank {other} in it is {_ranks(told[other])}")
        if len(slice_) != len(told[first]):
            raise _misfit(f"the slice of rank {rank} has {len(slice_)} ranks ({_ranks(slice_)}), that of rank {first} has {len(told[first])} ({_ranks(told[first])})")
    return sorted({*told.values()})


def refuse_uneven(rank: int, slices: Iterable[Slice], held: Iterable[Held]) -> None:
    """Every slice holds what this rank does, each in the same places: else who leaves takes something along, or who comes is somebody else."""
    slices, seen = [*slices], set()
    mine = slice_with(rank, slices)
    for key, box, holders in held:
        if holders in seen:
            continue
        seen.add(holders)
        those = {*holders}
        places = [place for place, member in enumerate(mine) if member in those]
        for other in slices:
            there = [place for place, member in enumerate(other) if member in those]
            if not there:
                raise _misfit(f"rank {rank} holds '{key}' ({box}), and none of the slice of ranks {_ranks(other)} does: if the others left, it would be lost")
            if there != places:
                raise _misfit(f"'{key}' ({box}) is held by ranks {_ranks([mine[place] for place in places])} of the slice {_ranks(mine)}, and by ranks "
                              f"{_ranks([other[place] for place in there])} of {_ranks(other)}, which are other places in it")  # fmt: skip


def _ranks(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _misfit(what: str) -> Error:
    return Error(f"run.offer: {what}", Code.INVALID_ARGUMENT)  # before training another attempt does not help
