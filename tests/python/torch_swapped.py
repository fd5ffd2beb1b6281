"""Many groups connected anew at once: each has its own connections, all of them and no other's, and is aborted without the rest.

  torch_swapped.py [--coalesced]      4 ranks; faults of the launcher's between steps 3 and 5
                                      --coalesced: rank 1 leaves step 7 once, in the middle of collectives that torch collects to do them at once; in step 8
                                      it catches what it throws there
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
import torch.distributed as dist

import kintsugi.torch
from kintsugi.torch.groups import Groups

GROUPS = [[0, 1, 2, 3]] * 9 + [[0, 1], [2, 3], [1, 3], [0, 1, 2], [3], [0, 3]]

torch.set_num_threads(1)
torch.manual_seed(1)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
members: list[tuple[list[int], Any]] = [(ranks, dist.new_group(ranks)) for ranks in GROUPS]
mine = [(ranks, group) for ranks, group in members if run.rank in ranks]
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
run.register(model=layer, optimizer=optimizer)

coalesced: set[int] = {7, 8} if "--coalesced" in sys.argv and run.rank == 1 else set()
handed: dict[str, list[tuple[int, int]]] = {}
hand_over = Groups._hand_over


def noted(groups: Groups, group: Any, inner: Any, keep: list[Any], sockets: list[Any], generation: int, *more: Any) -> None:
    handed[group.place] = [(socket.descriptor, socket.inode) for socket in sockets]
    if len(sockets) != len(group.ranks) - 1:
        raise RuntimeError(f"group '{group.place}' of {group.ranks} has {len(sockets)} connections in generation {generation}")
    hand_over(groups, group, inner, keep, sockets, generation, *more)


Groups._hand_over = noted  # type: ignore[method-assign, assignment]


def sums(group: Any) -> float:
    value = torch.ones(1)
    dist.all_reduce(value, group=group)
    return value.item()


def step(k: int) -> None:
    optimizer.zero_grad()
    for ranks, group in mine:
        if sums(group) != len(ranks):
            raise RuntimeError(f"the sum over {ranks} is wrong")
    layer(torch.ones(1, 2)).sum().backward()
    if k == 6:
        everywhere = [connection for connections in handed.values() for connection in connections]
        if len(handed) != len(mine) + 1 or len(set(everywhere)) != len(everywhere):
            raise RuntimeError(f"connections that are several groups': {handed}")
        backend = mine[4][1]._get_backend(torch.device("cpu"))
        backend.close("this test closes it")
        try:
            sums(mine[4][1])
            raise AssertionError("a group that was aborted answers")
        except dist.DistBackendError:
            pass
        dist.barrier()
        for number, (ranks, group) in enumerate(mine):
            if number != 4 and sums(group) != len(ranks):
                raise RuntimeError(f"the sum over {ranks} is wrong after another group was aborted")
        mine.pop(4)
    if k in coalesced:
        coalesced.remove(k)
        with contextlib.suppress(*[ValueError] * (k == 8)), dist.distributed_c10d._coalescing_manager():
            sums(None)
            raise ValueError("left in the middle")
    optimizer.step()


run.train(step, steps=8)
