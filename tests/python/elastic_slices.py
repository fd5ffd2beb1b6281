"""Slices: of meshes of all forms, each holds every piece of every tensor once; and what is no slice is refused by name. Needs no run."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import kintsugi
from kintsugi.slices import Held, all_slices, refuse_halves, refuse_uneven, slice_with, slices_among
from kintsugi.torch.parallel import piece_of, replicas_of

WORLD = 8
Ways = tuple[tuple[str, ...], tuple[Placement, ...]]


def refused(words: str, function: Callable[..., object], *arguments: object) -> None:
    try:
        function(*arguments)
    except kintsugi.Error as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")


def made(names: tuple[str, ...], ways: list[Ways]) -> list[DTensor]:
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=names)
    return [distribute_tensor(torch.zeros(8, 8), mesh[dims] if len(dims) > 1 else mesh[dims[0]], placements) for dims, placements in ways]


def check(names: tuple[str, ...], ways: list[Ways], size: int) -> None:
    """As each of the ranks sees it."""
    pieces: list[dict[int, tuple[int, ...]]] = [{} for _ in ways]
    seen = set()
    held: dict[int, list[Held]] = {}
    for rank in range(WORLD):
        dist.init_process_group("fake", rank=rank, world_size=WORLD, store=FakeStore())
        tensors = made(names, ways)
        together = set().union(*map(replicas_of, tensors))
        found = [piece_of("weight", tensor, ()) for tensor in tensors]
        for of, piece in zip(pieces, found):
            of[rank] = piece.offset
        seen.add(tuple(slices_among(WORLD, together)))
        held[rank] = [Held("weight", str(piece.offset), piece.holders) for piece in found]
        dist.destroy_process_group()
    assert len(seen) == 1, seen
    slices = [*next(iter(seen))]
    assert {len(slice_) for slice_ in slices} == {size} and sorted(itertools.chain(*slices)) == [*range(WORLD)], slices
    for of in pieces:
        for slice_ in slices:
            assert {of[rank] for rank in slice_} == {*of.values()}, (slice_, of)
    for rank in range(WORLD):
        refuse_uneven(rank, slices, held[rank])


S0, S1, R = Shard(0), Shard(1), Replicate()
for at in itertools.permutations(("copies", "shards", "parts")):
    check(at, [(("parts",), (S0,)), (("parts",), (S1,)), (("parts",), (R,))], 2)
    check(at, [(("shards",), (S0,)), (("parts",), (S1,))], 4)
    inner = tuple(name for name in at if name != "copies")
    check(at, [(inner, (S0, S1)), (inner, (R, S0))], 4)
    check(at, [(at, (S0, S0, S1))], 8)
    check(at, [(at, (R, R, R))], 1)

assert slices_among(6, [(0, 3), (1, 4), (2, 5), (0, 1)]) == [(0, 1, 3, 4), (2, 5)]
assert slice_with(4, [(0, 1), (2, 4)]) == (2, 4)
pairs = [(0, 1), (2, 3), (4, 5)]
refuse_uneven(2, pairs, [Held("a", "whole", (0, 2, 4)), Held("b", "whole", (0, 1, 2, 3, 4, 5))])
refused("rank 2 holds 'a' (half), and none of the slice of ranks 4, 5 does", refuse_uneven, 2, pairs, [Held("a", "half", (0, 2))])
refused("'a' (half) is held by ranks 0 of the slice 0, 1, and by ranks 3 of 2, 3, which are other places in it", refuse_uneven, 0, pairs,
        [Held("a", "half", (0, 3, 4))])  # fmt: skip
refused("the slice of rank 0 is 0, 1, that of rank 1 in it is 1, 2", all_slices, {0: (0, 1), 1: (1, 2), 2: (1, 2)})
refused("the slice of rank 1 is 1, 3: it has that rank, and others that take part", all_slices, {0: (0,), 1: (1, 3)})
refused("the slice of rank 1 has 2 ranks (1, 2), that of rank 0 has 1 (0)", all_slices, {0: (0,), 1: (1, 2), 2: (1, 2)})
assert all_slices({0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}) == [(0, 2), (1, 3)]
refuse_halves(2, [2, 4], 4, None)
refused("a replica takes 2 ranks, so that worlds have a multiple of them, not 1, 3", refuse_halves, 2, [1, 2, 3], 4, None)
refused("'a' is held by ranks 1 alone, and the others lack it: a replica takes 4 ranks, which are all", refuse_halves, 4, [2, 4], 4, Held("a", "half", (1,)))
print("ok")
